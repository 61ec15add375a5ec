/* api.c - one request by libcurl, bounded in time and size. */
#include "dra/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "shared/printable.h"

#define CONNECT_MS 3000L
#define ANSWER_MS 10000L
#define BODY_MAX ((size_t)4 << 20)
#define TOKEN_MAX 16384 /* with what is in front of it */

struct body {
  char *bytes;
  size_t size;
};

int api_open(struct api *api, const struct api_access *access) {
  *api = (struct api){.access = access, .curl = curl_easy_init()};
  return api->curl ? 0 : -ENOMEM;
}

void api_close(struct api *api) { curl_easy_cleanup(api->curl); }

/* Less than was given to it ends the request. */
static size_t take_bytes(char *bytes, size_t one, size_t count, void *context) {
  struct body *body = context;
  size_t size = one * count;
  char *grown = size <= BODY_MAX - body->size ? realloc(body->bytes, body->size + size) : NULL;
  if (!grown)
    return 0;
  memcpy(grown + body->size, bytes, size);
  body->bytes = grown;
  body->size += size;
  return size;
}

/* "Authorization: Bearer TOKEN"; false: it can't be read. */
static bool read_token(const char *path, char header[TOKEN_MAX]) {
  size_t size = (size_t)snprintf(header, TOKEN_MAX, "Authorization: Bearer ");
  FILE *file = fopen(path, "re");
  if (!file)
    return false;
  size_t length = fread(header + size, 1, TOKEN_MAX - 1 - size, file);
  fclose(file);
  header[size + length] = '\0';
  header[size + strcspn(header + size, "\r\n")] = '\0';
  return length > 0;
}

static struct curl_slist *make_headers(const struct api_access *access) {
  char header[TOKEN_MAX];
  if (!read_token(access->token_file, header))
    return NULL;
  struct curl_slist *list = curl_slist_append(NULL, header), *longer = NULL;
  if (list)
    longer = curl_slist_append(list, "Content-Type: application/json");
  if (!longer)
    curl_slist_free_all(list);
  return longer;
}

static void set_up(const struct api *api, const char *method, const char *url, struct curl_slist *headers,
                   const char *text, struct body *body) {
  CURL *curl = api->curl;
  curl_easy_reset(curl); /* connections stay */
  curl_easy_setopt(curl, CURLOPT_URL, url);
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_CAINFO, api->access->ca_file);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https");
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, ANSWER_MS);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "gpushare-dra-driver/" GPUSHARE_VERSION);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
  if (text)
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, text);
}

/* Of one that is not of success: what the server says to it. */
static void explain(const char *method, const char *path, long status, const json_t *answer,
                    char why[API_WHY_SIZE]) {
  const char *said = json_string_value(json_object_get(answer, "message"));
  char text[160];
  printable_copy(text, said ? said : "", sizeof text);
  snprintf(why, API_WHY_SIZE, "the API server answers %s %.100s with %ld%s%s", method, path, status,
           *text ? ": " : "", text);
}

int api_call(struct api *api, const char *method, const char *path, const json_t *body, json_t **answer,
             char why[API_WHY_SIZE]) {
  char url[1024];
  long status = 0;
  struct body received = {.size = 0};
  struct curl_slist *headers = make_headers(api->access);
  if (answer)
    *answer = NULL;
  if (!headers) {
    snprintf(why, API_WHY_SIZE, "can't read the token of this pod's service account, %.200s",
             api->access->token_file);
    return -EACCES;
  }
  char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
  snprintf(url, sizeof url, "%s%s", api->access->server, path);
  set_up(api, method, url, headers, text, &received);
  CURLcode code = curl_easy_perform(api->curl);
  curl_easy_getinfo(api->curl, CURLINFO_RESPONSE_CODE, &status);
  json_t *said = code == CURLE_OK ? json_loadb(received.bytes, received.size, 0, NULL) : NULL;
  if (code != CURLE_OK)
    snprintf(why, API_WHY_SIZE, "can't %s %.100s at the API server, %.100s: %s", method, path,
             api->access->server, curl_easy_strerror(code));
  else if (status < 200 || status > 299)
    explain(method, path, status, said, why);
  if (answer)
    *answer = said;
  else
    json_decref(said);
  free(received.bytes);
  free(text);
  curl_slist_free_all(headers);
  log_debug("%s %s: %ld", method, path, status);
  return code == CURLE_OK ? (int)status : -EIO;
}
