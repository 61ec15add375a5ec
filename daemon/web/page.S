/* page.S - page.html, as it is. */
	.section .rodata
	.global page_begin
	.global page_end
page_begin:
	.incbin "page.html"
page_end:
	.section .note.GNU-stack,"",%progbits
