# The files that tests compare with are stored in archives, tests/**/NAME.tar.xz, and unpacked into NAME/ next to the
# archive, where git ignores them. scripts/goldens.py shows, compares and packs them.

# qtrain_unpack_goldens(archive): unpacks an archive if it has changed or if files are missing, as after a switch of
# branches, and deletes files that only the previous one had. The file .NAME.unpacked records the archive's digest, the
# number of files in NAME/, and the files of the archive.
function(qtrain_unpack_goldens archive)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${archive})
  get_filename_component(folder ${archive} DIRECTORY)
  get_filename_component(name ${archive} NAME_WE)
  set(mark ${folder}/.${name}.unpacked)
  file(LOCK ${mark}.lock GUARD FUNCTION)  # another build of the same sources may be configured at the same time
  file(SHA256 ${archive} digest)
  qtrain_count_files(${folder}/${name} count)
  set(seen "")
  if(EXISTS ${mark})
    file(STRINGS ${mark} before)
    list(POP_FRONT before seen)
  endif()
  if(seen MATCHES "^${digest} ([0-9]+)$" AND NOT count LESS CMAKE_MATCH_1)
    return()
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -E tar tf ${archive} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" files "${listing}")
  foreach(file IN LISTS before)
    if(NOT file IN_LIST files)
      qtrain_remove_file(${folder}/${file})
    endif()
  endforeach()
  file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${folder})
  qtrain_count_files(${folder}/${name} count)
  file(WRITE ${mark} "${digest} ${count}\n${listing}")
endfunction()

# qtrain_remove_file(path): deletes a file, and the folders that are empty without it.
function(qtrain_remove_file path)
  file(REMOVE ${path})
  set(rest "")
  while(NOT rest)
    get_filename_component(path ${path} DIRECTORY)
    file(GLOB rest ${path}/*)
    if(NOT rest)
      file(REMOVE_RECURSE ${path})
    endif()
  endwhile()
endfunction()

function(qtrain_count_files folder variable)
  file(GLOB_RECURSE files LIST_DIRECTORIES false ${folder}/*)
  list(LENGTH files count)
  set(${variable} ${count} PARENT_SCOPE)
endfunction()
