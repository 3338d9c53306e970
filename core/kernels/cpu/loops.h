#pragma once
#include <stdint.h>

/// For the raw-pointer headers of vector loops: declares the tables of a family, one per
/// instruction set. See Note [One table per instruction set] in isa.h.
#define LOCKSTEP_DECLARE_LOOPS(Family) \
  extern const Family##Loops k##Family##LoopsBaseline, k##Family##LoopsAvx2, k##Family##LoopsAvx512

/// In `family_loops.cpp`: the name of the table being compiled.
#define LOCKSTEP_JOIN2(a, b) a##b
#define LOCKSTEP_JOIN(a, b) LOCKSTEP_JOIN2(a, b)
#define LOCKSTEP_LOOPS_TABLE(Family) LOCKSTEP_JOIN(k##Family##Loops, LOCKSTEP_ISA)

/// In `family.cpp`: the table for the set in use.
#if defined(__x86_64__)
#define LOCKSTEP_PICK_LOOPS(Family) \
  ::lockstep::cpu::pick(k##Family##LoopsBaseline, k##Family##LoopsAvx2, k##Family##LoopsAvx512)
#else
#define LOCKSTEP_PICK_LOOPS(Family) (k##Family##LoopsBaseline)
#endif
