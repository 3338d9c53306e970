#include "apps/cli/openmp.h"
#include "apps/program.h"

int main(int argc, char** argv) {
  lockstep::apps::spin_briefly(argv);
  return lockstep::apps::run_program(argc, argv);
}
