/* api.h - the API server: requests over HTTPS, with the pod's token, one after the other. */
#ifndef GS_DRA_API_H
#define GS_DRA_API_H

#include <curl/curl.h>
#include <jansson.h>

#define API_WHY_SIZE 320

/* Where it is, and who asks. */
struct api_access {
  const char *server;     /* "https://HOST:PORT" */
  const char *token_file; /* read for each request: tokens are replaced before they expire */
  const char *ca_file;
};

/* Of one thread. */
struct api {
  const struct api_access *access;
  CURL *curl;
};

/* 0 or -ENOMEM. */
int api_open(struct api *api, const struct api_access *access);
void api_close(struct api *api);

/* The answer's status, and in *answer, unless NULL, its body as JSON: the caller's, NULL if it is none. Or
 * -errno and why, as it is if the status is not one of success: a sentence about method and path. */
int api_call(struct api *api, const char *method, const char *path, const json_t *body, json_t **answer,
             char why[API_WHY_SIZE]);

#endif
