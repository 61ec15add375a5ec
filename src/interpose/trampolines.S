/*
 * trampolines.S - the exported dlsym, dlvsym and dlopen. The C library takes the caller's return address to
 * decide what RTLD_NEXT, RTLD_DEFAULT and a relative name mean, so passing a call on must be a jump, in every
 * build type: hence assembly. Each asks its filter (lookup.c); a verdict with a tail is a jump, else a return.
 */
#if defined(__x86_64__)

#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

.macro trampoline name, filter
  .globl \name
  .type \name, @function
  .globl trampoline_\name
  .hidden trampoline_\name
  .p2align 4
\name:
trampoline_\name:
  .cfi_startproc
  _CET_ENDBR
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  pushq %rdx /* the stack is aligned to 16 again */
  .cfi_adjust_cfa_offset 8
  call \filter
  movq %rdx, %r11
  popq %rdx
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %r11, %r11
  jz 1f
  jmpq *%r11
1:
  ret
  .cfi_endproc
  .size \name, . - \name
.endm

#elif defined(__aarch64__)

.macro trampoline name, filter
  .globl \name
  .type \name, %function
  .globl trampoline_\name
  .hidden trampoline_\name
  .p2align 4
\name:
trampoline_\name:
  .cfi_startproc
  hint #34 /* bti c */
  stp x29, x30, [sp, #-48]!
  .cfi_adjust_cfa_offset 48
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  stp x0, x1, [sp, #16]
  str x2, [sp, #32]
  bl \filter
  mov x16, x1
  mov x17, x0
  ldp x0, x1, [sp, #16]
  ldr x2, [sp, #32]
  ldp x29, x30, [sp], #48
  .cfi_adjust_cfa_offset -48
  .cfi_restore x29
  .cfi_restore x30
  cbz x16, 1f
  br x16
1:
  mov x0, x17
  ret
  .cfi_endproc
  .size \name, . - \name
.endm

#else
#error "libunified knows x86-64 and aarch64"
#endif

  .text
  trampoline dlsym, lookup_dlsym
  trampoline dlvsym, lookup_dlvsym
  trampoline dlopen, lookup_dlopen

  .section .note.GNU-stack, "", %progbits

#ifdef __ARM_FEATURE_BTI_DEFAULT /* x86-64's note is in cet.h */
  .section .note.gnu.property, "a"
  .p2align 3
  .word 4, 16, 5
  .asciz "GNU"
  .word 0xc0000000, 4, 1, 0 /* GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI */
#endif
