/**
 * Tiny ONNX models with the signatures of real ones, so that engines are tested on any machine
 * without a download. They are written into a test's own folder, never committed.
 */
import { floatTensor, integerTensor, writeOnnx } from './onnx-writer.ts';

/**
 * A model with the input and the first two of the seven outputs of U-2-Net whose answer is plain
 * brightness: what is bright is kept.
 */
export function toyCutoutModel(side: 320 | 1024 = 320): Buffer {
  const mask = (name: string) => ({ name, type: 'float' as const, shape: [1, 1, side, side] });
  return writeOnnx({
    name: 'toy-cutout',
    opset: 17,
    nodes: [
      {
        type: 'ReduceMean',
        inputs: ['input.1'],
        outputs: ['d0'],
        attributes: { axes: { ints: [1] }, keepdims: { int: 1 } },
      },
      { type: 'Neg', inputs: ['d0'], outputs: ['d1'] },
    ],
    constants: [],
    inputs: [{ name: 'input.1', type: 'float', shape: [1, 3, side, side] }],
    outputs: [mask('d0'), mask('d1')],
  });
}

/** What the toy speech model hears: a low tone is `a`, a high tone is `b`, silence is nothing. */
export const TOY_SPEECH_TOKENS = '<blk> 0\n▁a 1\n▁b 2\n';
/** Of the tones, in Hz. */
export const TOY_SPEECH_TONES = { a: 440, b: 2000 } as const;

const MEL_BINS = 80;
/** Mel filters of the front end in which the tones fall: 20 to 7600 Hz in 80 steps. */
const TONE_BINS = [
  [13, 14, 15],
  [42, 43, 44],
] as const;
/** Log energy above which a tone counts as heard. */
const HEARD_ABOVE = -2;
const SUBSAMPLING = 4;

/**
 * A CTC speech model with the ports of a Zipformer: `x` are mel frames, `log_probs` the tokens. One
 * matrix compares the energy around each tone with a threshold.
 */
export function toySpeechModel(): Buffer {
  const weights = Array.from({ length: MEL_BINS }, (_, bin) => [
    0,
    ...TONE_BINS.map((bins) => (bins.some((one) => one === bin) ? 1 / bins.length : 0)),
  ]).flat();
  return writeOnnx({
    name: 'toy-speech',
    opset: 17,
    nodes: [
      { type: 'Slice', inputs: ['x', 'start', 'end', 'axis', 'step'], outputs: ['frames'] },
      { type: 'MatMul', inputs: ['frames', 'weights'], outputs: ['energy'] },
      { type: 'Add', inputs: ['energy', 'threshold'], outputs: ['logits'] },
      {
        type: 'LogSoftmax',
        inputs: ['logits'],
        outputs: ['log_probs'],
        attributes: { axis: { int: 2 } },
      },
      { type: 'Add', inputs: ['x_lens', 'round'], outputs: ['rounded'] },
      { type: 'Div', inputs: ['rounded', 'step'], outputs: ['log_probs_len'] },
    ],
    constants: [
      integerTensor('start', [0]),
      integerTensor('end', [1_000_000]),
      integerTensor('axis', [1]),
      integerTensor('step', [SUBSAMPLING]),
      integerTensor('round', [SUBSAMPLING - 1]),
      floatTensor('weights', [MEL_BINS, 3], weights),
      floatTensor('threshold', [3], [0, -HEARD_ABOVE, -HEARD_ABOVE]),
    ],
    inputs: [
      { name: 'x', type: 'float', shape: ['N', 'T', MEL_BINS] },
      { name: 'x_lens', type: 'int64', shape: ['N'] },
    ],
    outputs: [
      { name: 'log_probs', type: 'float', shape: ['N', 'U', 3] },
      { name: 'log_probs_len', type: 'int64', shape: ['N'] },
    ],
    metadata: { model_type: 'zipformer2_ctc', vocab_size: '3' },
  });
}
