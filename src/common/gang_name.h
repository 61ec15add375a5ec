/* gang_name.h - which processes this one computes together with, as its environment tells. */
#ifndef GS_GANG_NAME_H
#define GS_GANG_NAME_H

#include "gpushare/protocol.h"

/*
 * GPUSHARE_GANG, unless it is empty ("none": no gang, whatever else the environment says); else the job of
 * the launcher that has started several processes: torchrun, Slurm, Open MPI or another MPI with a job id.
 * One that is found at a loopback address is another one in each network namespace. The name is empty if
 * there is none. One that is too long ends with a number made of all of it.
 */
void gang_name_find(char *(*environment)(const char *variable), char name[GS_GANG_SIZE]);

#endif
