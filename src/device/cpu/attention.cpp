#include "cpu/vector_math.h"
