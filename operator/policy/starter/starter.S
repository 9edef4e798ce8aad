# The starter: a program of some hundred bytes that the downward API brings into a pod as a file, so that a command can be started with
# a longer PYTHONPATH in an image that has no shell. x86-64, Linux. pack.py makes the text of starter.txt from it.
#
#   start NAME=PREFIX SUFFIX PROGRAM [ARGUMENT...]
#       runs PROGRAM with NAME set to PREFIX + ":" + its present value + SUFFIX; without a present value, PREFIX + SUFFIX.
#       PROGRAM is looked up in PATH. If it cannot be run: a line on standard error, exit code 127.
#   start try PROGRAM [ARGUMENT...]
#       runs PROGRAM, or ends with 0 if that cannot be.
#
# Registers: r12 the program's argv, r13 envp, r14 the exit code where nothing can be run, rbp the frame on which strings are built.

    .intel_syntax noprefix
    .globl _start
_start:
    mov     rbp, rsp
    mov     rax, [rbp]                      # argc
    lea     r13, [rbp + rax*8 + 16]         # envp
    mov     r14d, 127
    cmp     rax, 3
    jb      give_up
    mov     rsi, [rbp + 16]                 # argv[1]
    lea     r12, [rbp + 24]
    cmp     dword ptr [rsi], 0x00797274     # "try"
    jne     extend
    xor     r14d, r14d
    jmp     run

# ---- the environment with the longer variable --------------------------------------------------------------------------------

extend:
    cmp     rax, 4
    jb      give_up
    lea     r12, [rbp + 32]
    mov     rdi, rsi
    mov     al, '='
    call    find                            # rdx: letters of NAME=
    jne     give_up
    inc     rdx
    mov     rbx, rdx

    xor     r9d, r9d                        # the present value; 0: there is none
    mov     rcx, r13
count:
    mov     rdi, [rcx]
    add     rcx, 8
    test    rdi, rdi
    jz      counted
    test    r9, r9
    jnz     count
    call    begins_with_name
    jne     count
    lea     r9, [rdi + rbx]
    jmp     count
counted:
    sub     rcx, r13                        # bytes of envp, its end included
    sub     rsp, rcx
    sub     rsp, 8
    mov     r10, rsp                        # the new envp
    mov     r11, r13
    lea     r15, [r10 + 8]                  # its first entry is ours
copy:
    mov     rdi, [r11]
    add     r11, 8
    test    rdi, rdi
    jz      copied
    call    begins_with_name
    je      copy
    mov     [r15], rdi
    add     r15, 8
    jmp     copy
copied:
    mov     [r15], rdi                      # 0
    mov     r13, r10

    mov     rdi, [rbp + 16]                 # room for the three parts, two separators
    call    length
    mov     rcx, rdx
    mov     rdi, [rbp + 24]
    call    length
    add     rcx, rdx
    test    r9, r9
    jz      measured
    mov     rdi, r9
    call    length
    add     rcx, rdx
measured:
    add     rcx, 16
    sub     rsp, rcx
    mov     [r13], rsp
    mov     rdi, rsp
    mov     rsi, [rbp + 16]
    call    append
    test    r9, r9
    jz      suffix
    cmp     byte ptr [r9], 0
    je      suffix
    mov     byte ptr [rdi], ':'
    inc     rdi
    mov     rsi, r9
    call    append
suffix:
    mov     rsi, [rbp + 24]
    call    append
    mov     byte ptr [rdi], 0

# ---- the program -------------------------------------------------------------------------------------------------------------

run:
    mov     rdi, [r12]
    cmp     byte ptr [rdi], 0
    je      give_up
    mov     al, '/'
    call    find
    je      direct
    mov     r15, rdx                        # letters of the program's name
    lea     r11, [r13 - 8]
path:
    add     r11, 8
    mov     rsi, [r11]
    test    rsi, rsi
    jz      give_up
    cmp     dword ptr [rsi], 0x48544150     # "PATH"
    jne     path
    cmp     byte ptr [rsi + 4], '='
    jne     path
    add     rsi, 5
    mov     rdi, rsi
    call    length
    sub     rsp, rdx
    sub     rsp, r15
    sub     rsp, 16
    mov     rbx, rsi
folder:
    mov     rdi, rsp                        # FOLDER/NAME
element:
    mov     al, [rbx]
    test    al, al
    jz      try
    inc     rbx
    cmp     al, ':'
    je      try
    mov     [rdi], al
    inc     rdi
    jmp     element
try:
    cmp     rdi, rsp                        # an empty element would be the working folder: passed over
    je      next
    push    rax
    mov     byte ptr [rdi], '/'
    inc     rdi
    mov     rsi, [r12]
    call    append
    mov     byte ptr [rdi], 0
    lea     rdi, [rsp + 8]
    call    execute
    pop     rax
next:
    test    al, al
    jnz     folder
    jmp     give_up
direct:
    call    execute

give_up:
    test    r14d, r14d
    jz      end
    mov     edi, 2
    lea     rsi, [rip + message]
    mov     edx, offset message_end - message
    mov     eax, 1                          # write
    syscall
end:
    mov     edi, r14d
    mov     eax, 231                        # exit_group
    syscall

# ---- subroutines -------------------------------------------------------------------------------------------------------------

execute:                                    # rdi: path; returns if it cannot be run
    mov     rsi, r12
    mov     rdx, r13
    mov     eax, 59                         # execve
    syscall
    ret

length:                                     # rdx: letters of the string at rdi
    xor     eax, eax
find:                                       # rdx: letters of the string at rdi before al; equal: al is there
    xor     edx, edx
1:  cmp     [rdi + rdx], al
    je      2f
    cmp     byte ptr [rdi + rdx], 0
    lea     rdx, [rdx + 1]
    jne     1b
    dec     rdx
    cmp     al, 0
2:  ret

begins_with_name:                           # equal: the string at rdi begins with the rbx letters of NAME= at rsi
    xor     edx, edx
1:  mov     al, [rsi + rdx]
    cmp     al, [rdi + rdx]
    jne     2f
    inc     rdx
    cmp     rdx, rbx
    jb      1b
    cmp     eax, eax
2:  ret

append:                                     # copies the string at rsi to rdi, which moves behind it
    mov     al, [rsi]
    test    al, al
    jz      2f
    mov     [rdi], al
    inc     rsi
    inc     rdi
    jmp     append
2:  ret

message:
    .ascii  "stitchfleet: the command cannot be run\n"
message_end:
