/* test_gang_table.c - which jobs belong together. */
#include "server/clients.h"
#include "suite.h"

static struct gang_table gangs;

static void set_up(void) { gang_table_init(&gangs); }

TEST(a_gang_has_a_user_and_a_name) {
  struct gang *gang = gang_table_enter(&gangs, 1000, "a");
  struct gang *of_other_name = gang_table_enter(&gangs, 1000, "b"),
              *of_other_user = gang_table_enter(&gangs, 1001, "a");
  ck_assert_ptr_eq(gang_table_enter(&gangs, 1000, "a"), gang);
  ck_assert(of_other_name != gang && of_other_user != gang);
  ck_assert_ptr_eq(gang_table_find(&gangs, 1000, gang_key("b")), of_other_name);
  ck_assert_ptr_eq(gang_table_find(&gangs, 1001, gang_key("a")), of_other_user);
  ck_assert_ptr_null(gang_table_find(&gangs, 1001, gang_key("b")));
  ck_assert_uint_eq(gang_key(""), 0);
  gang_table_leave(of_other_name);
  gang_table_leave(of_other_user);
  gang_table_leave(gang);
  gang_table_leave(gang);
}

TEST(it_lasts_until_its_last_job_has_left) {
  struct gang *gang = gang_table_enter(&gangs, 1000, "a");
  gang_table_enter(&gangs, 1000, "a");
  gang_table_leave(gang);
  ck_assert_uint_eq(gangs.count, 1);
  gang_table_leave(gang);
  ck_assert_uint_eq(gangs.count, 0);
}

/* Two names that differ only in what no terminal should see are two gangs. */
TEST(people_see_a_printable_name) {
  struct gang *one = gang_table_enter(&gangs, 1000, "x\x1b"),
              *other = gang_table_enter(&gangs, 1000, "x\xc3");
  ck_assert_ptr_ne(one, other);
  ck_assert_str_eq(one->shown, "x?");
  ck_assert_str_eq(other->shown, "x?");
  gang_table_leave(one);
  gang_table_leave(other);
}

int main(void) { return suite_run_all("gang_table", set_up, NULL); }
