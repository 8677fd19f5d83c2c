# qtrain_discover(program LABEL label [TIMEOUT seconds] [SLOW test ...]): every test of a program by itself. Those that
# take too long for an ordinary run have the label <label>_slow, which scripts/test.sh leaves to --full.
include(GoogleTest)
function(qtrain_discover program)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SLOW" ${ARGN})
  set(common DISCOVERY_TIMEOUT 60)
  if(ARG_TIMEOUT)
    set(common TIMEOUT ${ARG_TIMEOUT} ${common})
  endif()
  if(NOT ARG_SLOW)
    gtest_discover_tests(${program} PROPERTIES LABELS ${ARG_LABEL} ${common})
    return()
  endif()
  list(JOIN ARG_SLOW ":" slow)
  gtest_discover_tests(${program} TEST_FILTER "-${slow}" PROPERTIES LABELS ${ARG_LABEL} ${common})
  gtest_discover_tests(${program} TEST_FILTER "${slow}" TEST_LIST ${program}_slow
                       PROPERTIES LABELS ${ARG_LABEL}_slow ${common})
endfunction()
