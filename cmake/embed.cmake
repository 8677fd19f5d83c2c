# qtrain_embed(target function file...): embeds text files into the target. function() returns them all, keyed by file
# name without extension.
function(qtrain_embed target function)
  set(QTRAIN_FUNCTION ${function})
  set(QTRAIN_TEXTS "")
  foreach(file ${ARGN})
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} text)
    string(APPEND QTRAIN_TEXTS "      {\"${name}\", R\"text(${text})text\"},\n")
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
  configure_file(${CMAKE_SOURCE_DIR}/cmake/embedded.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp @ONLY)
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp)
endfunction()
