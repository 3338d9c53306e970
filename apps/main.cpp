#include "apps/program.h"

int main(int argc, char** argv) { return lockstep::apps::run_program(argc, argv); }
