#include "support/session.h"

int main(int argc, char** argv) {
  return skrull::test::run_session(argc, argv);
}
