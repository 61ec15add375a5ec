/* address.c - where the daemon shows its metrics, as the configuration says it. */
#include "server/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/parse.h"

#define FILE_PREFIX "unix:"

static int parse_file(const char *path, struct address *address) {
  if (*path != '/' || strlen(path) >= sizeof address->file.sun_path)
    return -EINVAL;
  address->file.sun_family = AF_UNIX;
  strcpy(address->file.sun_path, path);
  address->size = sizeof address->file;
  return 0;
}

static int set_host(const char *host, uint16_t port, struct address *address) {
  size_t length = strlen(host);
  char inner[INET6_ADDRSTRLEN] = "";
  if (inet_pton(AF_INET, host, &address->ip4.sin_addr) == 1) {
    address->ip4.sin_family = AF_INET;
    address->ip4.sin_port = htons(port);
    address->size = sizeof address->ip4;
    return 0;
  }
  if (length < 3 || length - 2 >= sizeof inner || host[0] != '[' || host[length - 1] != ']')
    return -EINVAL;
  memcpy(inner, host + 1, length - 2);
  address->ip6.sin6_family = AF_INET6;
  address->ip6.sin6_port = htons(port);
  address->size = sizeof address->ip6;
  return inet_pton(AF_INET6, inner, &address->ip6.sin6_addr) == 1 ? 0 : -EINVAL;
}

int address_parse(const char *text, struct address *address) {
  char host[ADDRESS_TEXT_SIZE];
  const char *colon = strrchr(text, ':');
  int64_t port;
  *address = (struct address){0};
  if (strncmp(text, FILE_PREFIX, strlen(FILE_PREFIX)) == 0)
    return parse_file(text + strlen(FILE_PREFIX), address);
  if (!colon || (size_t)(colon - text) >= sizeof host || parse_integer(colon + 1, 0, UINT16_MAX, &port) < 0)
    return -EINVAL;
  memcpy(host, text, (size_t)(colon - text));
  host[colon - text] = '\0';
  return set_host(host, (uint16_t)port, address);
}

void address_format(const struct address *address, char text[ADDRESS_TEXT_SIZE]) {
  char host[INET6_ADDRSTRLEN] = "";
  if (address->any.sa_family == AF_UNIX) {
    snprintf(text, ADDRESS_TEXT_SIZE, FILE_PREFIX "%s", address->file.sun_path);
  } else if (address->any.sa_family == AF_INET) {
    inet_ntop(AF_INET, &address->ip4.sin_addr, host, sizeof host);
    snprintf(text, ADDRESS_TEXT_SIZE, "%s:%u", host, ntohs(address->ip4.sin_port));
  } else {
    inet_ntop(AF_INET6, &address->ip6.sin6_addr, host, sizeof host);
    snprintf(text, ADDRESS_TEXT_SIZE, "[%s]:%u", host, ntohs(address->ip6.sin6_port));
  }
}
