# The Debian package: scripts/package makes it, of this build folder's programs and a library built by
# scripts/portable-library (GPUSHARE_LIBRARY_BUILD; else that of this folder, which needs this machine's C library).
set(GPUSHARE_LIBRARY_BUILD "" CACHE PATH "Build folder whose libunified.so goes into the package")
set(GPUSHARE_CONTACT "gpushare maintainers <gpushare@localhost>" CACHE STRING "Maintainer of the package")

set(debian ${PROJECT_SOURCE_DIR}/packaging/debian)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gpushare)
set(CPACK_PACKAGE_CONTACT "${GPUSHARE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "share NVIDIA GPUs between unmodified programs")
set(CPACK_PACKAGE_DESCRIPTION "Programs that use CUDA share a GPU, also when their memory does not fit
on the card together: each believes that it has the whole card, and they
take turns while their memory moves in bulk between card and host.
.
It has the daemon, gpusharectl, and the library to be preloaded.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_CMAKE_PROJECTS ${PROJECT_BINARY_DIR} gpushare programs /)
if(GPUSHARE_LIBRARY_BUILD)
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS ${GPUSHARE_LIBRARY_BUILD} gpushare library /)
else()
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS ${PROJECT_BINARY_DIR} gpushare library /)
endif()

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Who makes the daemon's user; a container that only runs programs needs none.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "systemd | systemd-standalone-sysusers")
# For metrics; loaded only where they are wanted. Ubuntu calls it otherwise.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libmicrohttpd12 | libmicrohttpd12t64")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${debian}/postinst ${debian}/prerm ${debian}/postrm ${debian}/conffiles
  ${debian}/triggers)
set(CPACK_PRE_BUILD_SCRIPTS ${debian}/finish.cmake)
include(CPack)
