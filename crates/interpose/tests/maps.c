/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Maps its standard input and writes the first bytes that it sees there. */

#include <sys/mman.h>
#include <unistd.h>

int main(void)
{
    enum { LENGTH = 8 };
    char *bytes = mmap(NULL, LENGTH, PROT_READ, MAP_PRIVATE, STDIN_FILENO, 0);
    if (bytes == MAP_FAILED) {
        return 1;
    }
    return write(STDOUT_FILENO, bytes, LENGTH) == LENGTH ? 0 : 2;
}
