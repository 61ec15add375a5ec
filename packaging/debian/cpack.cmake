# Of the Debian package alone.
set(debian ${CMAKE_CURRENT_LIST_DIR})
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
