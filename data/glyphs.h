// The ways to write each digit that synthesize.c draws from.
#ifndef DATA_GLYPHS_H
#define DATA_GLYPHS_H

#include <stdint.h>

enum { MAX_KNOTS = 10, DIGIT_WEIGHT = 10 };

// What the pen does at a knot: it goes on smoothly, turns sharply, lifts and goes on at the next
// knot, or ends the digit.
enum { SMOOTH, CORNER, LIFT, END };

struct glyph {
    uint8_t digit;
    uint8_t weight;             // how often it is taken, of DIGIT_WEIGHT times for its digit
    int8_t knots[MAX_KNOTS][3]; // x and y, 0 to 100 from the top left, and a mark
};

// clang-format off
static const struct glyph GLYPHS[] = {
    // an oval; with a tail that crosses its start
    {0, 7, {{56, 2}, {14, 28}, {14, 74}, {50, 100}, {88, 68}, {84, 22}, {50, 2, END}}},
    {0, 3, {{74, 10}, {34, 4}, {8, 58}, {44, 100}, {90, 62}, {78, 10}, {30, 16, END}}},
    // a bar; with a flag; with a flag and a foot
    {1, 7, {{50, 0}, {50, 50}, {50, 100, END}}},
    {1, 2, {{30, 22}, {52, 0, CORNER}, {50, 50}, {50, 100, END}}},
    {1, 1, {{30, 20}, {50, 0, CORNER}, {50, 50}, {50, 100, LIFT}, {24, 100}, {78, 100, END}}},
    // with a straight foot; with a loop at the foot; with a wavy foot
    {2, 4, {{14, 24}, {34, 4}, {66, 4}, {80, 28}, {60, 60}, {12, 98, CORNER}, {52, 96}, {92, 96, END}}},
    {2, 4, {{16, 18}, {46, 0}, {76, 22}, {62, 58}, {30, 92}, {10, 88}, {26, 74}, {56, 90}, {94, 92, END}}},
    {2, 2, {{10, 28}, {40, 2}, {74, 24}, {52, 64}, {10, 96, CORNER}, {40, 86}, {66, 98}, {96, 86, END}}},
    // two bows that meet in a point; in a loop; under a flat roof
    {3, 6, {{16, 14}, {46, 0}, {78, 20}, {64, 42}, {36, 48, CORNER}, {72, 54}, {84, 78}, {52, 100}, {10, 88, END}}},
    {3, 3, {{18, 8}, {56, 2}, {76, 24}, {52, 46}, {34, 48}, {54, 46}, {82, 68}, {64, 96}, {34, 98}, {12, 86, END}}},
    {3, 1, {{16, 4}, {78, 4, CORNER}, {42, 40, CORNER}, {76, 52}, {82, 80}, {48, 100}, {12, 88, END}}},
    // open, in two strokes; open, with a round bowl; closed, in one stroke
    {4, 5, {{22, 4}, {16, 32}, {14, 56, CORNER}, {46, 58}, {84, 52, LIFT}, {76, 0}, {70, 50}, {66, 100, END}}},
    {4, 3, {{18, 2}, {8, 36}, {28, 56}, {62, 48}, {82, 20, LIFT}, {84, 0}, {74, 50}, {68, 100, END}}},
    {4, 2, {{74, 62}, {44, 62}, {8, 62, CORNER}, {64, 0, CORNER}, {62, 50}, {60, 100, END}}},
    // the hat drawn last; in one stroke; in one round stroke
    {5, 4, {{28, 4}, {22, 44, CORNER}, {56, 38}, {84, 62}, {60, 94}, {10, 94, LIFT}, {28, 4}, {86, 2, END}}},
    {5, 4, {{86, 4}, {34, 6, CORNER}, {24, 44, CORNER}, {60, 44}, {80, 70}, {54, 96}, {8, 92, END}}},
    {5, 2, {{92, 2}, {54, 6}, {34, 24}, {48, 46}, {74, 62}, {66, 90}, {34, 98}, {6, 86, END}}},
    // with a bent back; with a straight one; curled at the top
    {6, 5, {{70, 0}, {34, 22}, {14, 64}, {34, 98}, {72, 90}, {76, 62}, {46, 52}, {18, 74, END}}},
    {6, 3, {{46, 0}, {26, 40}, {20, 80}, {44, 100}, {74, 82}, {62, 58}, {34, 64}, {22, 82, END}}},
    {6, 2, {{84, 10}, {58, 2}, {24, 28}, {16, 72}, {48, 100}, {80, 78}, {60, 54}, {24, 64, END}}},
    // a roof and a leg; with a bar across the leg; with a round shoulder; with a serif
    {7, 4, {{10, 8}, {48, 6}, {86, 4, CORNER}, {62, 48}, {46, 100, END}}},
    {7, 2, {{10, 8}, {48, 6}, {84, 4, CORNER}, {58, 50}, {42, 100, LIFT}, {28, 50}, {78, 46, END}}},
    {7, 3, {{8, 16}, {40, 4}, {78, 6}, {74, 36}, {58, 66}, {50, 100, END}}},
    {7, 1, {{14, 26}, {12, 6, CORNER}, {84, 4, CORNER}, {60, 50}, {48, 100, END}}},
    // from the top right; from the waist; two rings
    {8, 6, {{78, 12}, {48, 0}, {22, 20}, {46, 46}, {74, 74}, {46, 100}, {20, 76}, {50, 48}, {76, 26}, {70, 8, END}}},
    {8, 3, {{50, 46}, {26, 22}, {50, 0}, {76, 20}, {50, 48}, {22, 76}, {48, 100}, {76, 78}, {54, 50, END}}},
    {8, 1, {{50, 2}, {26, 22}, {48, 46}, {74, 26}, {50, 2, LIFT}, {48, 48}, {18, 76}, {48, 100}, {82, 76}, {52, 48, END}}},
    // a ring with a straight leg; with a bent one; with a hook
    {9, 5, {{78, 14}, {46, 2}, {18, 28}, {38, 52}, {72, 38}, {78, 10, CORNER}, {74, 50}, {66, 100, END}}},
    {9, 3, {{74, 20}, {48, 2}, {20, 26}, {36, 50}, {68, 38}, {76, 18}, {72, 56}, {48, 100, END}}},
    {9, 2, {{80, 10}, {42, 4}, {20, 30}, {46, 50}, {76, 30}, {80, 8}, {78, 60}, {58, 96}, {22, 90, END}}},
};
// clang-format on

#endif
