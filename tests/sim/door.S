/*
 * door.S - an exported function of the driver: asks door_enter (doors.c) whether the call may go in, with the caller's
 * arguments kept whatever they are; then it is a jump. Included by the generated doors.S.
 */
#if defined(__x86_64__)

#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

  .text
  .type door_common, @function
door_common: /* r11: where the call goes; eax: which function it is */
  pushq %r11
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9 /* the stack is aligned to 16 again */
  subq $16, %rsp
  movdqu %xmm0, (%rsp)
  movl %eax, %edi
  call door_enter
  movdqu (%rsp), %xmm0
  addq $16, %rsp
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  popq %r11
  testl %eax, %eax
  jnz 1f
  jmpq *%r11
1:
  ret
  .size door_common, . - door_common

.macro door name, inside, index
  .text
  .globl \name
  .type \name, @function
  .hidden \inside
  .p2align 4
\name:
  _CET_ENDBR
  leaq \inside(%rip), %r11
  movl $\index, %eax
  jmp door_common
  .size \name, . - \name
  .skip (\index * 7919 % 13) * 16 /* functions are of different sizes, so that their addresses collide in tables */
.endm

#elif defined(__aarch64__)

  .text
  .type door_common, %function
door_common: /* x16: where the call goes; w17: which function it is */
  stp x29, x30, [sp, #-96]!
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x16, [sp, #80]
  str d0, [sp, #88]
  mov w0, w17
  bl door_enter
  mov w17, w0
  ldr d0, [sp, #88]
  ldr x16, [sp, #80]
  ldp x6, x7, [sp, #64]
  ldp x4, x5, [sp, #48]
  ldp x2, x3, [sp, #32]
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #96
  cbnz w17, 1f
  br x16
1:
  mov w0, w17
  ret
  .size door_common, . - door_common

.macro door name, inside, index
  .text
  .globl \name
  .type \name, %function
  .hidden \inside
  .p2align 4
\name:
  hint #34 /* bti c */
  adrp x16, \inside
  add x16, x16, :lo12:\inside
  mov w17, #\index
  b door_common
  .size \name, . - \name
  .skip (\index * 7919 % 13) * 16 /* functions are of different sizes, so that their addresses collide in tables */
.endm

#endif

/* What follows is the table of exported functions, in the order of symbols.inc. */
.macro exports
  .section .data.rel.ro, "aw"
  .p2align 3
  .globl door_exports
  .hidden door_exports
door_exports:
.endm
