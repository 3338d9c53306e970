# ctest's tests out of GoogleTest's cases: one for each TEST, and one for each TEST_P with all its
# parameters. A process a parameter, which is what gtest_discover_tests makes, costs more than most
# of our cases take, under the sanitizers several times as much. A TEST_P of many parameters is
# several tests, NAME/1_of_3 …, each with every third of them.
set(LOCKSTEP_CASES_A_TEST 25)

# lockstep_add_tests(TARGET [LABEL label] [FILTERS filter...]) for the cases that pass one of some
# GoogleTest filters, else for all. Suites whose name begins with "Slow" are labelled slow instead.
# What there is, is asked for when ctest starts.
function(lockstep_add_tests target)
  cmake_parse_arguments(PARSE_ARGV 1 _ "" "LABEL" "FILTERS")
  if(NOT __FILTERS)
    set(__FILTERS "*")
  endif()
  set(base ${CMAKE_CURRENT_BINARY_DIR}/${target})
  file(GENERATE OUTPUT ${base}_include.cmake CONTENT "set(program \"$<TARGET_FILE:${target}>\")
set(tests \"${base}_tests.cmake\")
if(EXISTS \"\${program}\")
  if(NOT EXISTS \"\${tests}\" OR NOT \"\${tests}\" IS_NEWER_THAN \"\${program}\" OR
     NOT \"\${tests}\" IS_NEWER_THAN \"\${CMAKE_CURRENT_LIST_FILE}\" OR
     NOT \"\${tests}\" IS_NEWER_THAN \"${CMAKE_CURRENT_FUNCTION_LIST_FILE}\")
    include(\"${CMAKE_CURRENT_FUNCTION_LIST_FILE}\")
    lockstep_write_tests(\"\${program}\" \"\${tests}\" \"${__LABEL}\" \"${__FILTERS}\")
  endif()
  include(\"\${tests}\")
else()
  add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)
endif()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${base}_include.cmake)
endfunction()

# The cases of a program, SUITE.CASE each, that pass one of the filters.
function(lockstep_list_cases program filters result)
  set(cases "")
  foreach(filter ${filters})
    execute_process(COMMAND ${program} --gtest_list_tests --gtest_filter=${filter}
      OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY TIMEOUT 60)
    string(REGEX REPLACE " *#[^\n]*" "" listed "${listed}")  # parameters' values
    string(REPLACE "\n" ";" listed "${listed}")
    foreach(line ${listed})
      if(line MATCHES "^  (.*)")
        list(APPEND cases ${suite}${CMAKE_MATCH_1})
      else()
        set(suite ${line})
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES cases)
  set(${result} ${cases} PARENT_SCOPE)
endfunction()

function(lockstep_write_tests program file label filters)
  lockstep_list_cases(${program} "${filters}" cases)
  set(tests "")
  foreach(case ${cases})
    string(REGEX REPLACE "(\\.[^/]*)/.*" "\\1" test ${case})
    list(APPEND tests ${test})
    list(APPEND cases_${test} ${case})
  endforeach()
  list(REMOVE_DUPLICATES tests)

  file(WRITE ${file} "")
  foreach(test ${tests})
    list(LENGTH cases_${test} count)
    math(EXPR parts "(${count} + ${LOCKSTEP_CASES_A_TEST} - 1) / ${LOCKSTEP_CASES_A_TEST}")
    set(properties "LABELS ${label} TIMEOUT 120")
    if(test MATCHES "^Slow")
      set(properties "LABELS slow TIMEOUT 300")
    elseif(count GREATER 1)
      set(properties "LABELS ${label} TIMEOUT 300")
    endif()
    # A test is skipped if all of its cases are, and none failed.
    string(APPEND properties " COST ${count} SKIP_REGULAR_EXPRESSION \
[==[  PASSED  . 0 tests\\.\n(.  SKIPPED . [^\n]*\n)+$]==]")
    foreach(part RANGE 1 ${parts})
      set(name ${test})
      if(parts GREATER 1)
        set(name ${test}/${part}_of_${parts})
      endif()
      set(filter "")
      math(EXPR first "${part} - 1")
      math(EXPR last "${count} - 1")
      foreach(i RANGE ${first} ${last} ${parts})
        list(GET cases_${test} ${i} case)
        string(APPEND filter :${case})
      endforeach()
      string(SUBSTRING ${filter} 1 -1 filter)
      file(APPEND ${file} "add_test(${name} ${program} --gtest_filter=${filter})
set_tests_properties(${name} PROPERTIES ${properties})\n")
    endforeach()
  endforeach()
endfunction()
