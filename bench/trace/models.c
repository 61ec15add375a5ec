/*
 * models.c - the trainings of the paper's table 3.
 *
 * peak_mib: measured by Salus' authors on their P100, from tests/workloads.csv of their public repository
 * (SymbioticLab/Salus), which has the eleven classifiers; vae from the paper's figure 1. superres, speech and
 * seq2seq are our estimates from the shapes of their layers: neither source has them as numbers.
 *
 * gpu_use: the paper's figure 12 is all that has been published on how much these jobs gain from running side
 * by side: 300 resnet50_50 take 1/1.07 of their time one by one, 300 superres_128 1/2.38. So that is the part
 * of its time for which a job keeps the GPU busy; classifiers are taken for the former, the others, small or
 * held up by their input, for the latter.
 */
#include "trace/trace.h"

#define BUSY (1 / 1.07)
#define LIGHT (1 / 2.38)

const struct model models[MODELS] = {
    {"alexnet", {"25", "50", "100"}, {631, 1063, 1240}, BUSY},
    {"googlenet", {"25", "50", "100"}, {743, 1399, 2531}, BUSY},
    {"inception3", {"25", "50", "100"}, {2479, 4795, 9390}, BUSY},
    {"inception4", {"25", "50", "75"}, {4435, 8529, 12611}, BUSY},
    {"overfeat", {"25", "50", "100"}, {3255, 3417, 6184}, BUSY},
    {"resnet50", {"25", "50", "75"}, {2104, 4006, 5907}, BUSY},
    {"resnet101", {"25", "50", "75"}, {3225, 6103, 8981}, BUSY},
    {"resnet152", {"25", "50", "75"}, {4547, 8634, 12718}, BUSY},
    {"vgg11", {"25", "50", "100"}, {6615, 9738, 12810}, BUSY},
    {"vgg16", {"25", "50", "100"}, {6614, 9738, 12962}, BUSY},
    {"vgg19", {"25", "50", "100"}, {6614, 9738, 12550}, BUSY},
    {"vae", {"64", "128", "256"}, {35, 35, 35}, LIGHT},
    {"superres", {"32", "64", "128"}, {600, 1200, 2400}, LIGHT},
    {"speech", {"25", "50", "75"}, {1500, 3000, 4500}, LIGHT},
    {"seq2seq", {"small", "medium", "large"}, {500, 1200, 3000}, LIGHT},
};
