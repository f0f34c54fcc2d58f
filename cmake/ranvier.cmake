# What every target of ranvier shares.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)

add_library(ranvier_flags INTERFACE)
target_compile_options(ranvier_flags INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion
                                               -Wnon-virtual-dtor -Wold-style-cast -fno-omit-frame-pointer)
# Of sources that are compiled as one, the unnamed namespaces of those before are around the locals of the next.
target_compile_options(ranvier_flags INTERFACE $<IF:$<BOOL:${RANVIER_UNITY}>,-Wshadow=local,-Wshadow>)
# g++ 12 sees overlaps in std::string that are not there (GCC bug 105329).
target_compile_options(ranvier_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(RANVIER_DEVELOPER)
  target_compile_options(ranvier_flags INTERFACE -Werror)
endif()
if(RANVIER_SANITIZE)
  target_compile_options(ranvier_flags INTERFACE -fsanitize=${RANVIER_SANITIZE} -fno-sanitize-recover=all
                                                 -fno-sanitize=vptr)  # it needs a pipe, which tests without descriptors lack
  target_link_options(ranvier_flags INTERFACE -fsanitize=${RANVIER_SANITIZE})
  # It does not know fences, of which lent_memory.cc has two, and only warns.
  if(RANVIER_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(ranvier_flags INTERFACE -Wno-tsan)
  endif()
  target_compile_definitions(ranvier_flags INTERFACE RANVIER_SANITIZED)  # see tests/support/sanitized.h
endif()

# What nearly every source includes, parsed once: that took half of the time of most. The preset tidy does without, so that
# each file still names what it needs.
file(WRITE ${PROJECT_BINARY_DIR}/ranvier_headers.cc "")
add_library(ranvier_headers STATIC ${PROJECT_BINARY_DIR}/ranvier_headers.cc)
target_link_libraries(ranvier_headers PRIVATE ranvier_flags fmt::fmt Threads::Threads)
target_precompile_headers(ranvier_headers PRIVATE <fmt/format.h> <fmt/ranges.h> <algorithm> <array> <chrono> <cstdint> <cstring>
                          <functional> <map> <memory> <optional> <span> <string> <string_view> <vector>)

# ranvier_together(target …): where the preset asks for it, their sources are compiled several as one, so that what all of
# them make of the same headers is made once. What stands in unnamed namespaces of such a target has different names; a
# source that wants the name of another one, or what it includes, for itself has SKIP_UNITY_BUILD_INCLUSION.
function(ranvier_together)
  if(RANVIER_UNITY)
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
endfunction()

# ranvier_library(name SOURCES a.cc … DEPENDS ranvier_base … [OWN_HEADERS]): one static library a folder. OWN_HEADERS: it
# precompiles other headers.
function(ranvier_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OWN_HEADERS" "" "SOURCES;DEPENDS")
  add_library(${name} STATIC ${arg_SOURCES})
  ranvier_together(${name})
  if(NOT arg_OWN_HEADERS)
    target_precompile_headers(${name} REUSE_FROM ranvier_headers)
  endif()
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
                                     PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS} Threads::Threads PRIVATE $<BUILD_INTERFACE:ranvier_flags> fmt::fmt)
endfunction()

# Of tests, of benchmarks, of what they precompile, and of the command line, while developing: they take less long to run
# than to optimize. What they test, or time, is optimized. With less of it g++ 12 takes empty optionals for uninitialized
# ones.
set(ranvier_cold_options "$<$<CONFIG:RelWithDebInfo>:-O1>"
                         "$<$<AND:$<CONFIG:RelWithDebInfo>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>")

# ranvier_test(name SOURCES a.cc … DEPENDS … [APART b.cc …]): a GoogleTest program, a ctest with its own time limit, which
# is for what hangs: on a machine that has other things to do some take ten times as long as alone; a long one as SHARDS of
# its tests, which may run side by side. APART: sources that are not compiled together with others. COMPUTES: it waits for
# nothing, so that it may have what other tests leave of the processors, in as long as that takes (see the Makefile).
function(ranvier_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "COMPUTES" "TIMEOUT;SHARDS" "SOURCES;DEPENDS;APART")
  set(labels)
  if(arg_COMPUTES)
    set(labels LABELS computes)
    set(arg_TIMEOUT 3000)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 400)
    if(RANVIER_SANITIZE OR CMAKE_CROSSCOMPILING)  # then under an emulator
      set(arg_TIMEOUT 1000)
    endif()
  endif()
  find_package(GTest REQUIRED)
  add_executable(${name} ${arg_SOURCES} ${arg_APART})
  ranvier_together(${name})
  set_source_files_properties(${arg_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_precompile_headers(${name} REUSE_FROM ranvier_test_headers)
  target_compile_options(${name} PRIVATE ${ranvier_cold_options})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} ranvier_flags fmt::fmt GTest::gtest GTest::gmock GTest::gtest_main)
  set(environment "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp")
  if(arg_SHARDS)
    math(EXPR last "${arg_SHARDS} - 1")
    foreach(shard RANGE ${last})
      add_test(NAME ${name}_${shard} COMMAND ${name})
      # The longest begin first.
      set_tests_properties(${name}_${shard} PROPERTIES TIMEOUT ${arg_TIMEOUT} COST 100 ENVIRONMENT
                           "${environment};GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard}" ${labels})
    endforeach()
  else()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${environment}" ${labels})
  endif()
endfunction()
