#include "skrull/schedule/timeline.h"
