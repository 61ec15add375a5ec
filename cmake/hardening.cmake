# How everything that is installed is compiled and linked, whoever builds it: included by the folders of the product.
# Tests are built as users' programs are.
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckLinkerFlag)
include(CheckPIESupported)

check_pie_supported(LANGUAGES C)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# add_hardening(FLAG...): those that the compiler knows.
function(add_hardening)
  foreach(flag ${ARGN})
    string(MAKE_C_IDENTIFIER "GPUSHARE_HAS${flag}" known)
    check_c_compiler_flag(${flag} ${known})
    if(${known})
      add_compile_options(${flag})
    endif()
  endforeach()
endfunction()

# Each is of some processors only. A C library whose first and last objects have no mark for shadow stacks (Debian's) takes
# it from all that is linked to them, though they do nothing that these mind; and so does a static library.
set(processor_flags -fcf-protection=full)
set(processor_link_flags -Wl,-z,shstk)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(processor_flags -mbranch-protection=standard)
  set(processor_link_flags "")
endif()
add_hardening(-fstack-protector-strong -fstack-clash-protection ${processor_flags})

# Level 3 is gcc's from 12, clang's from 9, and glibc's from 2.34: others would warn of it. Sanitizers have their own look
# at these calls, and without optimization there is none. Distributions set a level of their own: hence -U.
set(CMAKE_REQUIRED_FLAGS "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
check_c_source_compiles("#include <features.h>
  #if __USE_FORTIFY_LEVEL < 3
  #error
  #endif
  int main(void) { return 0; }" GPUSHARE_CAN_FORTIFY_3)
unset(CMAKE_REQUIRED_FLAGS)
if(NOT GPUSHARE_SANITIZE)
  set(level 2)
  if(GPUSHARE_CAN_FORTIFY_3)
    set(level 3)
  endif()
  add_compile_options($<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=${level}>)
endif()

foreach(flag -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack ${processor_link_flags})
  string(MAKE_C_IDENTIFIER "GPUSHARE_LINKS${flag}" known)
  check_linker_flag(C ${flag} ${known})
  if(${known})
    add_link_options(${flag})
  endif()
endforeach()
