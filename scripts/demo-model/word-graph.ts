/**
 * Encodes a table "after these up to three pieces comes that piece" as the weights of a one-block
 * llama graph, without training:
 *
 * - every piece has a fixed code; the residual stream holds the code of this piece, of the one
 *   before and of the one before that, plus a constant;
 * - two attention heads look back exactly one and two places: their scores depend on the distance
 *   alone, because query and key are the constant turned by the rotary position;
 * - each feed-forward cell is a detector for one context and writes the codes of its followers;
 * - the output matrix compares what was written with the code of every piece.
 */
import type { Tensor } from './gguf-writer.ts';

/** What may follow when the last pieces are `context` (oldest first, one to three long). */
export interface Followers {
  readonly context: readonly number[];
  /** Piece id -> how much its score grows. */
  readonly boosts: ReadonlyMap<number, number>;
}

const CODE = 64;
const CONSTANT_AT = 3 * CODE;
const CONSTANT_BLOCK = 32;
const OUT_AT = CONSTANT_AT + CONSTANT_BLOCK;
const OUT = 192;
const HEADS = 2;
/** Two different codes of the input never agree more than this, so that detectors stay exact. */
const MAX_AGREEMENT = 0.45;
/** How steeply a detector opens; half of it is its value when open. */
const GATE_SLOPE = 24;
/** Written scores are kept small, so that the norm of the stream stays the same for all pieces. */
const WRITE_SCALE = 1 / 200;
/** The score of pieces that must not be written: half characters and marks. */
const MUTED_SCORE = -40;
const CONSTANT_LEFT = 0.05;
/** Score distance between the wanted place and every other one, after softmax scaling. */
const LOOK_BACK_MARGIN = 24;

export const GRAPH = {
  width: OUT_AT + OUT,
  heads: HEADS,
  headLength: CODE,
  /** Low, so that all turning rates are quick and near places can be told apart. */
  rotaryBase: 4,
  epsilon: 1e-6,
  contextLength: 8192,
} as const;

/** All tensors of the model, in the order of the file. The `muted` pieces are never written. */
export function buildTensors(
  vocabularySize: number,
  table: readonly Followers[],
  muted: ReadonlySet<number>,
): Tensor[] {
  const random = generator(20_261_121);
  const inCodes = makeCodes(vocabularySize, CODE, MAX_AGREEMENT, random);
  const outCodes = makeCodes(vocabularySize, OUT, MAX_AGREEMENT, random);
  const cells = Math.ceil(table.length / 32) * 32;
  return [
    matrix('token_embd.weight', GRAPH.width, vocabularySize, 'Q8_0', (set) => {
      for (const [id, code] of inCodes.entries()) {
        code.forEach((value, index) => set(id, index, value));
        set(id, CONSTANT_AT, 1);
      }
    }),
    norm('blk.0.attn_norm.weight', Math.sqrt(2 / GRAPH.width)),
    ...attentionTensors(),
    norm('blk.0.ffn_norm.weight', Math.sqrt(4 / GRAPH.width)),
    ...detectorTensors(table, cells, inCodes, outCodes),
    outputNorm(),
    matrix('output.weight', GRAPH.width, vocabularySize, 'Q8_0', (set) => {
      for (const [id, code] of outCodes.entries()) {
        code.forEach((value, index) => set(id, OUT_AT + index, value / WRITE_SCALE));
        if (muted.has(id)) set(id, CONSTANT_AT, MUTED_SCORE / CONSTANT_LEFT);
      }
    }),
  ];
}

/** Head `h` looks back `h + 1` places and copies that piece's code into its own slot. */
function attentionTensors(): Tensor[] {
  const strength = lookBackStrength();
  const rates = rotaryRates();
  return [
    matrix('blk.0.attn_q.weight', GRAPH.width, HEADS * CODE, 'Q8_0', (set) => {
      for (let head = 0; head < HEADS; head += 1) {
        rates.forEach((rate, pair) => {
          const angle = -rate * (head + 1);
          set(head * CODE + 2 * pair, CONSTANT_AT, strength * Math.cos(angle));
          set(head * CODE + 2 * pair + 1, CONSTANT_AT, strength * Math.sin(angle));
        });
      }
    }),
    matrix('blk.0.attn_k.weight', GRAPH.width, HEADS * CODE, 'Q8_0', (set) => {
      for (let row = 0; row < HEADS * CODE; row += 2) set(row, CONSTANT_AT, strength);
    }),
    matrix('blk.0.attn_v.weight', GRAPH.width, HEADS * CODE, 'Q8_0', (set) => {
      for (let row = 0; row < HEADS * CODE; row += 1) set(row, row % CODE, 1);
    }),
    matrix('blk.0.attn_output.weight', HEADS * CODE, GRAPH.width, 'Q8_0', (set) => {
      for (let column = 0; column < HEADS * CODE; column += 1) set(CODE + column, column, 1);
    }),
  ];
}

function rotaryRates(): number[] {
  return Array.from({ length: CODE / 2 }, (_, pair) => GRAPH.rotaryBase ** ((-2 * pair) / CODE));
}

/** The size of query and key at which no place but the wanted one keeps weight. */
function lookBackStrength(): number {
  const rates = rotaryRates();
  let second = 0;
  for (let distance = 1; distance <= GRAPH.contextLength; distance += 1) {
    let score = 0;
    for (const rate of rates) score += Math.cos(rate * distance);
    second = Math.max(second, score);
  }
  const margin = (rates.length - second) / Math.sqrt(CODE);
  return Math.sqrt(LOOK_BACK_MARGIN / margin);
}

/** One cell per context: open when all its codes are met, half a step short of closed else. */
function detectorTensors(
  table: readonly Followers[],
  cells: number,
  inCodes: readonly Float32Array[],
  outCodes: readonly Float32Array[],
): Tensor[] {
  const gate = matrix('blk.0.ffn_gate.weight', GRAPH.width, cells, 'Q8_0', (set) => {
    for (const [cell, { context }] of table.entries()) {
      context.toReversed().forEach((piece, back) => {
        inCodes[piece]?.forEach((value, index) =>
          set(cell, back * CODE + index, GATE_SLOPE * value),
        );
      });
      set(cell, CONSTANT_AT, GATE_SLOPE * (0.5 - context.length));
    }
  });
  const up = matrix('blk.0.ffn_up.weight', GRAPH.width, cells, 'Q8_0', (set) => {
    for (const cell of table.keys()) set(cell, CONSTANT_AT, 1);
  });
  const down = matrix('blk.0.ffn_down.weight', cells, GRAPH.width, 'Q8_0', (_set, add) => {
    const open = GATE_SLOPE / 2;
    for (const [cell, { boosts }] of table.entries()) {
      for (const [piece, boost] of boosts) {
        outCodes[piece]?.forEach((value, index) =>
          add(OUT_AT + index, cell, (value * boost * WRITE_SCALE) / open),
        );
      }
    }
  });
  return [gate, up, down];
}

function norm(name: string, value: number): Tensor {
  const values = new Float32Array(GRAPH.width).fill(value);
  return { name, columns: GRAPH.width, values, format: 'F32' };
}

/** Little of the constant is left at the end, so that pooled vectors compare pieces only. */
function outputNorm(): Tensor {
  const tensor = norm('output_norm.weight', Math.sqrt(4 / GRAPH.width));
  tensor.values[CONSTANT_AT] = (tensor.values[CONSTANT_AT] ?? 0) * CONSTANT_LEFT;
  return tensor;
}

type Cell = (row: number, column: number, value: number) => void;

function matrix(
  name: string,
  columns: number,
  rows: number,
  format: Tensor['format'],
  fill: (set: Cell, add: Cell) => void,
): Tensor {
  const values = new Float32Array(columns * rows);
  const set: Cell = (row, column, value) => {
    values[row * columns + column] = value;
  };
  const add: Cell = (row, column, value) => {
    values[row * columns + column] = (values[row * columns + column] ?? 0) + value;
  };
  fill(set, add);
  return { name, columns, rows, values, format };
}

/** Codes of unit length with random signs, any two of which agree at most `maxAgreement`. */
function makeCodes(
  count: number,
  length: number,
  maxAgreement: number,
  random: () => number,
): Float32Array[] {
  const codes: Float32Array[] = [];
  const size = 1 / Math.sqrt(length);
  while (codes.length < count) {
    const code = new Float32Array(length).map(() => (random() < 0.5 ? -size : size));
    const agrees = codes.some((other) => {
      let sum = 0;
      for (let index = 0; index < length; index += 1) {
        sum += (code[index] ?? 0) * (other[index] ?? 0);
      }
      return Math.abs(sum) > maxAgreement;
    });
    if (!agrees) codes.push(code);
  }
  return codes;
}

/** Mulberry32: the same numbers on every machine. */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
