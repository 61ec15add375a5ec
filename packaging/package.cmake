# The packages: scripts/package makes them, of this build folder's programs and a library built by scripts/portable-library
# (GPUSHARE_LIBRARY_BUILD; else that of this folder, which needs this machine's C library). What one format needs alone is in
# debian/cpack.cmake and rpm/cpack.cmake.
set(GPUSHARE_LIBRARY_BUILD "" CACHE PATH "Build folder whose libunified.so goes into the package")
set(GPUSHARE_CONTACT "gpushare maintainers <gpushare@localhost>" CACHE STRING "Maintainer of the package")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gpushare)
set(CPACK_PACKAGE_CONTACT "${GPUSHARE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "share NVIDIA GPUs between unmodified programs")
set(CPACK_PACKAGE_DESCRIPTION "Programs that use CUDA share a GPU, also when their memory does not fit
on the card together: each believes that it has the whole card, and they
take turns while their memory moves in bulk between card and host.
.
It has the daemon, gpusharectl, and the library to be preloaded.")
# What is compiled into the programs, and written into units: scripts/package configures /usr.
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_CMAKE_PROJECTS ${PROJECT_BINARY_DIR} gpushare programs /)
if(GPUSHARE_LIBRARY_BUILD)
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS ${GPUSHARE_LIBRARY_BUILD} gpushare library /)
else()
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS ${PROJECT_BINARY_DIR} gpushare library /)
endif()
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/finish.cmake)

include(${PROJECT_SOURCE_DIR}/packaging/debian/cpack.cmake)
include(${PROJECT_SOURCE_DIR}/packaging/rpm/cpack.cmake)
include(CPack)
