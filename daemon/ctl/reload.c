/* reload.c - gpusharectl reload: the daemon reads its configuration again, and says what came of it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "ctl/output.h"

struct news {
  json_t *changed, *restart;
  char wrong[1024];
};

static void take_note(void *argument, enum gs_note kind, const char *text) {
  struct news *news = argument;
  if (kind == GS_NOTE_WRONG)
    snprintf(news->wrong, sizeof news->wrong, "%s", text);
  else
    json_array_append_new(kind == GS_NOTE_RESTART ? news->restart : news->changed, json_string(text));
}

static void print_texts(const json_t *texts) {
  for (size_t i = 0; i < json_array_size(texts); i++)
    printf("%s\n", json_string_value(json_array_get(texts, i)));
}

static int tell_news(const struct request *request, const struct news *news) {
  if (request->json)
    return output_line(json_pack("{sO sO}", "changed", news->changed, "restart", news->restart));
  print_texts(news->changed);
  print_texts(news->restart);
  if (json_array_size(news->changed) + json_array_size(news->restart) == 0)
    puts("nothing has changed");
  return CTL_OK;
}

int reload_command(const struct request *request) {
  struct news news = {.changed = json_array(), .restart = json_array()};
  struct ask_error error;
  int fd, code = connect_daemon(request, &fd);
  if (code == CTL_OK) {
    code = ask_try_reload(fd, false, take_note, &news, &error);
    if (*news.wrong)
      command_error(code, "%s", news.wrong);
    code = ask_say(code, &error);
    close(fd);
  }
  if (code == CTL_OK)
    code = tell_news(request, &news);
  json_decref(news.changed);
  json_decref(news.restart);
  return code;
}
