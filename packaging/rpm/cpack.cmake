# Of the RPM package alone: cpack -G RPM, as `scripts/package --rpm` calls it.
set(rpm ${CMAKE_CURRENT_LIST_DIR})
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_RELEASE 1)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
string(REPLACE "\n.\n" "\n\n" CPACK_RPM_PACKAGE_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
# There is no package with debugging symbols; and a .pc file alone is no reason to have pkg-config.
set(CPACK_RPM_SPEC_MORE_DEFINE "%define _build_id_links none\n%global __requires_exclude pkg-config$")
# For metrics; loaded only where they are wanted.
set(CPACK_RPM_PACKAGE_SUGGESTS libmicrohttpd)
set(CPACK_RPM_USER_FILELIST "%config(noreplace) ${GPUSHARE_CONFIG_PATH}")
# Folders that are other packages'.
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /etc ${CMAKE_INSTALL_PREFIX})
foreach(folder bin sbin include lib lib/systemd lib/systemd/system lib/sysusers.d lib/tmpfiles.d ${CMAKE_INSTALL_LIBDIR}
    ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_LIBEXECDIR} share share/doc share/man share/man/man1 share/man/man5 share/man/man7 share/man/man8
    share/bash-completion share/bash-completion/completions share/zsh share/zsh/site-functions)
  list(APPEND CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION ${CMAKE_INSTALL_PREFIX}/${folder})
endforeach()
# What tells whether programs use MPS is the Debian package's.
file(READ ${rpm}/../debian/postinst mps_is_used)
string(REGEX MATCH "mps_is_used\\(\\) {\n.*\n}\n" mps_is_used "${mps_is_used}")
configure_file(${rpm}/post.in ${PROJECT_BINARY_DIR}/packaging/rpm/post @ONLY)
set(CPACK_RPM_POST_INSTALL_SCRIPT_FILE ${PROJECT_BINARY_DIR}/packaging/rpm/post)
set(CPACK_RPM_PRE_UNINSTALL_SCRIPT_FILE ${rpm}/preun)
set(CPACK_RPM_POST_UNINSTALL_SCRIPT_FILE ${rpm}/postun)
