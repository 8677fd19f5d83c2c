# Tests need not run fast, so they are compiled without optimization.
function(qtrain_quick target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)  # for ccache
endfunction()

# qtrain_test(name LIBRARIES ... SOURCES ...): defines a test program.
function(qtrain_test name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;SOURCES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES} $<TARGET_OBJECTS:test_headers>)
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gtest_main)
  qtrain_test_sources(${name})
  # The linker keeps the first of several copies of an inline function. The libraries, which are optimized, therefore
  # come before the objects of the test.
  qtrain_libraries_of(libraries ${ARG_LIBRARIES})
  foreach(library IN LISTS libraries)
    target_link_options(${name} PRIVATE "LINKER:--whole-archive,$<TARGET_FILE:${library}>,--no-whole-archive")
  endforeach()
endfunction()
# qtrain_libraries_of(variable target ...): lists our static libraries among the targets and their dependencies, except
# kernels and the emulator.
function(qtrain_libraries_of variable)
  set(all "")
  foreach(target IN LISTS ARGN)
    if(NOT TARGET ${target} OR target MATCHES "kernels|emulator")
      continue()
    endif()
    get_target_property(type ${target} TYPE)
    get_target_property(linked ${target} INTERFACE_LINK_LIBRARIES)
    qtrain_libraries_of(others ${linked})
    if(type STREQUAL "STATIC_LIBRARY" AND target MATCHES "^qtrain_")
      list(APPEND all ${target})
    endif()
    list(APPEND all ${others})
  endforeach()
  list(REMOVE_DUPLICATES all)
  set(${variable} ${all} PARENT_SCOPE)
endfunction()
# qtrain_test_sources(target): sets how test sources are compiled.
function(qtrain_test_sources name)
  target_link_libraries(${name} PRIVATE GTest::gtest GTest::gmock)
  target_compile_definitions(${name} PRIVATE QTRAIN_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${QTRAIN_UNITY} UNITY_BUILD_BATCH_SIZE 40)
  if(NOT name STREQUAL "test_style")  # test_style spends its time in regular expressions, so it is optimized
    target_precompile_headers(${name} REUSE_FROM test_headers)
    qtrain_quick(${name})
  endif()
endfunction()

# qtrain_discover(program LABEL label [TIMEOUT seconds] [LONG test ...] [SLOW test ...]): registers every test of a
# program with ctest. Tests that take too long to run before every commit get the label <label>_long, which
# scripts/test.sh runs with --checks, or <label>_slow, which it runs with --full. If the label is unit or golden, the
# other tests need no process of their own: program and filter are added as a line to <build folder>/test_programs, and
# scripts/test.sh runs each such line in a few processes.
include(GoogleTest)
function(qtrain_discover program)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "LONG;SLOW" ${ARGN})
  set(common DISCOVERY_TIMEOUT 60)
  if(ARG_TIMEOUT)
    set(common TIMEOUT ${ARG_TIMEOUT} ${common})
  endif()
  list(JOIN ARG_SLOW ":" slow)
  list(JOIN ARG_LONG ":" long)
  if(ARG_LABEL MATCHES "^(unit|golden)")
    set_property(GLOBAL APPEND_STRING PROPERTY QTRAIN_TEST_PROGRAMS "${program} -${slow}:${long}\n")
  endif()
  gtest_discover_tests(${program} TEST_FILTER "-${slow}:${long}" PROPERTIES LABELS ${ARG_LABEL} ${common})
  if(ARG_LABEL MATCHES "^(unit|golden)")
    foreach(part RANGE 1 4)
      math(EXPR index "${part} - 1")
      set(test "${program}, part ${part}")
      add_test(NAME ${test} COMMAND ${program} "--gtest_filter=-${slow}:${long}" CONFIGURATIONS parts)
      set_tests_properties(${test} PROPERTIES LABELS parts COST 10 ENVIRONMENT
          "GTEST_TOTAL_SHARDS=4;GTEST_SHARD_INDEX=${index};GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/test_parts/${test}.xml")
    endforeach()
  endif()
  if(ARG_LONG)
    # They wait for lost peers: other tests use the processors meanwhile if these do not come last.
    gtest_discover_tests(${program} TEST_FILTER "${long}-${slow}" TEST_LIST ${program}_long
                         PROPERTIES LABELS ${ARG_LABEL}_long COST 5 ${common})
  endif()
  if(ARG_SLOW)
    gtest_discover_tests(${program} TEST_FILTER "${slow}" TEST_LIST ${program}_slow
                         PROPERTIES LABELS ${ARG_LABEL}_slow ${common})
  endif()
endfunction()

# qtrain_uses_nccl(program): tells a program where to find NCCL: the stand-in under the harness, otherwise any installed
# one (an empty text).
function(qtrain_uses_nccl program)
  if(TARGET qtrain_nccl_stand_in)
    target_compile_definitions(${program} PRIVATE QTRAIN_NCCL_FOLDER="${QTRAIN_NCCL_STAND_IN}")
    add_dependencies(${program} qtrain_nccl_stand_in)
  else()
    target_compile_definitions(${program} PRIVATE QTRAIN_NCCL_FOLDER="")
  endif()
endfunction()

# qtrain_with_gemm_library(program filter ...): runs tests of a program with the code that calls cuBLASLt on a GPU, and
# the stand-in for that library.
function(qtrain_with_gemm_library program)
  foreach(filter IN LISTS ARGN)
    set(test "${program} with the GEMM library, ${filter}")
    add_test(NAME ${test} COMMAND ${program} "--gtest_filter=${filter}")
    set_tests_properties(${test} PROPERTIES LABELS harness TIMEOUT 120 FAIL_REGULAR_EXPRESSION "Running 0 tests" ENVIRONMENT
        "QTRAIN_EMULATION=gemm=library;XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/gemm_library_cache")
  endforeach()
endfunction()
