# Read by pip's builds before anything else: names all missing libraries at once, where CMake would stop at the first.
set(missing "")
foreach(requirement fmt/core.h=libfmt-dev hwy/highway.h=libhwy-dev CLI/CLI.hpp=libcli11-dev
                    nlohmann/json.hpp=nlohmann-json3-dev zlib.h=zlib1g-dev zstd.h=libzstd-dev
                    eigen3/Eigen/Core=libeigen3-dev toml++/toml.h=libtomlplusplus-dev yaml-cpp/yaml.h=libyaml-cpp-dev openssl/ssl.h=libssl-dev)
  string(REPLACE "=" ";" requirement ${requirement})
  list(GET requirement 0 header)
  list(GET requirement 1 package)
  find_path(folder ${header} NO_CACHE)
  if(NOT folder)
    list(APPEND missing ${package})
  endif()
  unset(folder)
endforeach()
find_program(pkg_config NAMES pkg-config pkgconf NO_CACHE)
if(NOT pkg_config)
  list(APPEND missing pkg-config)
endif()
if(missing)
  list(JOIN missing " " missing)
  message(FATAL_ERROR "libraries that ranvier is built with are missing: run 'sudo apt-get install ${missing}' (or install "
                      "your system's packages of the same libraries), then run pip again")
endif()
