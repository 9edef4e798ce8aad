/* Holds a pod's namespaces open: sleeps, reaps the children that it inherits, and ends when it is told to. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void reap(int number) {
  (void)number;
  while (waitpid(-1, 0, WNOHANG) > 0) {
  }
}

static void stop(int number) {
  (void)number;
  _exit(0);
}

int main(void) {
  signal(SIGCHLD, reap);
  signal(SIGTERM, stop);
  signal(SIGINT, stop);
  for (;;) pause();
}
