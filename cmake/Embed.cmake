# Files that the program carries inside it. lockstep_embed(TARGET FILE...) gives TARGET each FILE as a
# std::string_view in lockstep::apps::asset, named after it (chart.js: chart_js), made again whenever
# the file changes.
function(lockstep_embed target)
  set(generated ${CMAKE_BINARY_DIR}/generated/assets.cpp)
  list(JOIN ARGN "," files)  # a list would come apart on the way
  add_custom_command(OUTPUT ${generated}
    COMMAND ${CMAKE_COMMAND} -DOUT=${generated} -DFILES=${files} -P ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake
    DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake
    COMMENT "Embedding style and scripts of the report" VERBATIM)
  target_sources(${target} PRIVATE ${generated})
endfunction()
