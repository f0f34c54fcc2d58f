# Defines the target `torch`: headers and CPU libraries of the torch that RANVIER_PYTHON imports; and RANVIER_TORCH_VERSION.
#
# Not find_package(Torch): on a CUDA build of torch, which is what PyPI hands out, that demands a CUDA toolkit. Nothing
# here uses CUDA, and libtorch_cpu.so and libc10.so are the same in both builds.
if(TARGET torch)
  return()
endif()

if(NOT RANVIER_PYTHON)
  if(Python_EXECUTABLE)  # scikit-build-core names the interpreter that pip runs
    set(ranvier_python ${Python_EXECUTABLE})
  else()
    find_program(ranvier_python python3 HINTS $ENV{VIRTUAL_ENV}/bin NO_CACHE)
  endif()
  set(RANVIER_PYTHON ${ranvier_python} CACHE FILEPATH "The Python interpreter whose torch is built for")
endif()

# pip's isolated build runs the interpreter of the virtual environment, but hides its packages with a sitecustomize on
# PYTHONPATH; without that variable they are there. torch is found and not imported, which would take seconds.
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env --unset=PYTHONPATH ${RANVIER_PYTHON} -c
          "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
  OUTPUT_VARIABLE ranvier_torch_folder
  OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE ranvier_torch_status)
if(NOT ranvier_torch_status EQUAL 0 OR NOT EXISTS "${ranvier_torch_folder}/version.py")
  message(FATAL_ERROR "no torch for ${RANVIER_PYTHON}: run '${RANVIER_PYTHON} -m pip install torch==2.13.0' first (a tool "
                      "that builds in an environment of its own, such as uv, also needs --no-build-isolation), or name "
                      "another interpreter with -DRANVIER_PYTHON=…, or leave torch out with -DRANVIER_TORCH=OFF")
endif()

file(STRINGS ${ranvier_torch_folder}/version.py ranvier_torch_line REGEX "^__version__ = ")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" RANVIER_TORCH_VERSION "${ranvier_torch_line}")
if(RANVIER_TORCH_VERSION VERSION_LESS 2.12)
  message(FATAL_ERROR "torch ${RANVIER_TORCH_VERSION} in ${ranvier_torch_folder} is too old: ranvier needs 2.12 or newer")
endif()
file(STRINGS ${ranvier_torch_folder}/share/cmake/Torch/TorchConfig.cmake ranvier_torch_old_abi REGEX "CXX11_ABI=0")
if(ranvier_torch_old_abi)
  message(FATAL_ERROR "torch ${RANVIER_TORCH_VERSION} in ${ranvier_torch_folder} was built for the C++ ABI of before 2011, "
                      "which no library of this system has: install a wheel of PyPI")
endif()

set(RANVIER_TORCH_VERSION ${RANVIER_TORCH_VERSION} CACHE INTERNAL "The version of torch that is built for")
add_library(torch INTERFACE IMPORTED GLOBAL)
target_include_directories(torch SYSTEM INTERFACE ${ranvier_torch_folder}/include
                                                  ${ranvier_torch_folder}/include/torch/csrc/api/include)
target_compile_definitions(torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)  # as in Caffe2Targets.cmake
target_link_libraries(torch INTERFACE ${ranvier_torch_folder}/lib/libtorch_cpu.so ${ranvier_torch_folder}/lib/libc10.so)
message(STATUS "torch ${RANVIER_TORCH_VERSION} in ${ranvier_torch_folder}")
