# The large files that tests compare with are stored in archives, tests/**/NAME.tar.xz, and unpacked into NAME/ next to the
# archive, where git ignores them. scripts/goldens.py shows, compares and packs them.

# qtrain_unpack_goldens(archive): unpacks an archive if it has changed or if files are missing, as after a switch of
# branches. The file .NAME.unpacked records the archive's digest and the number of files in NAME/.
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
    file(STRINGS ${mark} seen)
  endif()
  if(seen MATCHES "^${digest} ([0-9]+)$" AND NOT count LESS CMAKE_MATCH_1)
    return()
  endif()
  file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${folder})
  qtrain_count_files(${folder}/${name} count)
  file(WRITE ${mark} "${digest} ${count}\n")
endfunction()

function(qtrain_count_files folder variable)
  file(GLOB_RECURSE files LIST_DIRECTORIES false ${folder}/*)
  list(LENGTH files count)
  set(${variable} ${count} PARENT_SCOPE)
endfunction()
