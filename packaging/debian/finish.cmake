# What only a Debian package has, added to the files that CPack has put together: copyright, changelog, exceptions for
# lintian; and manual pages are compressed.
set(here ${CMAKE_CURRENT_LIST_DIR})
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
set(doc ${root}/usr/share/doc/gpushare)
configure_file(${here}/copyright ${doc}/copyright COPYONLY)
configure_file(${here}/changelog ${doc}/changelog.Debian COPYONLY)
configure_file(${here}/lintian-overrides ${root}/usr/share/lintian/overrides/gpushare COPYONLY)
file(GLOB_RECURSE pages ${root}/usr/share/man/*.[1-8])
execute_process(COMMAND gzip -9nf ${pages} ${doc}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE files LIST_DIRECTORIES true ${root}/*)
foreach(file ${files}) # whatever the umask was
  if(IS_DIRECTORY ${file} AND NOT IS_SYMLINK ${file})
    file(CHMOD ${file} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  endif()
endforeach()
file(GLOB_RECURSE libraries ${root}/usr/lib/*.so)
file(CHMOD ${libraries} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
