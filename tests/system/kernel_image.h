/* kernel_image.h - the module that has the test kernels: the file named by GS_TEST_MODULE (PTX, for a real
 * driver), else a word that the simulated driver takes for it. */
#ifndef TEST_KERNEL_IMAGE_H
#define TEST_KERNEL_IMAGE_H

/* Constant for the life of the process. Ends the program with a message when the file can't be read. */
const void *kernel_image(void);

#endif
