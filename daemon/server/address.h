/* address.h - where the daemon shows its metrics, as the configuration says it. */
#ifndef GS_ADDRESS_H
#define GS_ADDRESS_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ADDRESS_TEXT_SIZE 128
#define ADDRESS_OFF "off"

struct address {
  union {
    struct sockaddr any;
    struct sockaddr_in ip4;
    struct sockaddr_in6 ip6;
    struct sockaddr_un file;
  };
  socklen_t size;
};

/* "127.0.0.1:9465", "[::1]:9465" (port 0: any free one), "unix:/absolute/path". 0 or -EINVAL. No names: who
 * looks them up may wait for a network. */
int address_parse(const char *text, struct address *address);

/* The same the other way. */
void address_format(const struct address *address, char text[ADDRESS_TEXT_SIZE]);

#endif
