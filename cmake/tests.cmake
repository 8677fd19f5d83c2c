# Tests need not be fast, so they are compiled quickly.
function(qtrain_quick target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)  # for ccache
endfunction()

# qtrain_test(name LIBRARIES ... SOURCES ...): a test program.
function(qtrain_test name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;SOURCES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES} $<TARGET_OBJECTS:test_headers>)
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gtest_main)
  qtrain_test_sources(${name})
  # The linker keeps the first copy of an inline function that several objects have: before those of the test come the
  # libraries, which are optimized.
  qtrain_libraries_of(libraries ${ARG_LIBRARIES})
  foreach(library IN LISTS libraries)
    target_link_options(${name} PRIVATE "LINKER:--whole-archive,$<TARGET_FILE:${library}>,--no-whole-archive")
  endforeach()
endfunction()
# qtrain_libraries_of(variable target ...): the static libraries of ours among them and what they are linked to, but for
# kernels.
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
# qtrain_test_sources(target): how the sources of tests are compiled.
function(qtrain_test_sources name)
  target_link_libraries(${name} PRIVATE GTest::gtest GTest::gmock)
  target_compile_definitions(${name} PRIVATE QTRAIN_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${QTRAIN_UNITY} UNITY_BUILD_BATCH_SIZE 12)
  if(NOT name STREQUAL "test_style")  # which spends its time in regular expressions
    target_precompile_headers(${name} REUSE_FROM test_headers)
    qtrain_quick(${name})
  endif()
endfunction()

# qtrain_discover(program LABEL label [TIMEOUT seconds] [LONG test ...] [SLOW test ...]): every test of a program by
# itself. Those that take too long for a run before every commit have the label <label>_long, which scripts/test.sh
# leaves to --checks, or <label>_slow, which it leaves to --full. The others need no process each where the label is unit
# or golden: program and filter are a line of <build folder>/test_programs, which scripts/test.sh runs in a few parts.
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
    gtest_discover_tests(${program} TEST_FILTER "${long}-${slow}" TEST_LIST ${program}_long
                         PROPERTIES LABELS ${ARG_LABEL}_long ${common})
  endif()
  if(ARG_SLOW)
    gtest_discover_tests(${program} TEST_FILTER "${slow}" TEST_LIST ${program}_slow
                         PROPERTIES LABELS ${ARG_LABEL}_slow ${common})
  endif()
endfunction()

# qtrain_uses_nccl(program): where its ranks find NCCL: under the harness the stand-in, else wherever it is (an empty text).
function(qtrain_uses_nccl program)
  if(TARGET qtrain_nccl_stand_in)
    target_compile_definitions(${program} PRIVATE QTRAIN_NCCL_FOLDER="${QTRAIN_NCCL_STAND_IN}")
    add_dependencies(${program} qtrain_nccl_stand_in)
  else()
    target_compile_definitions(${program} PRIVATE QTRAIN_NCCL_FOLDER="")
  endif()
endfunction()
