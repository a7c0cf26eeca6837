import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { VideoModelSettings } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import { checkQueue, checkQuote, videoConstraints } from './model-checks.ts';
import { type Measured, frameSize, quoteVideo } from './video-pricing.ts';
import { type PricedRequest, VideoQueueRequest, VideoQuoteRequest } from './video-requests.ts';

const RATIOS = ['16:9', '9:16', '1:1', '21:9', '4:5', 'adaptive'];

const byResolution = VideoModelSettings.parse({
  task: 'reference-to-video',
  durations: ['1s', '5s', '8s', '30s', '-1', 'auto', 'Auto'],
  resolutions: ['480p', '720p'],
  aspectRatios: RATIOS,
  audio: true,
  audioConfigurable: true,
  pricing: {
    kind: 'duration-resolution',
    rates: { '480p': 0.012, '720p': { silent: 0.03, sound: 0.045 } },
    ratesWithReference: { '480p': 0.008 },
  },
});

const byMegapixel = VideoModelSettings.parse({
  task: 'text-to-video',
  durations: ['5s'],
  resolutions: ['720p', '480p'],
  aspectRatios: ['16:9', '9:16', '1:1', '21:9', '4:5'],
  pricing: { kind: 'megapixel', perMegapixelSecond: 0.01 },
});

const byTokens = VideoModelSettings.parse({
  task: 'reference-to-video',
  durations: ['1s', '5s', 'auto'],
  resolutions: ['720p', '480p'],
  aspectRatios: RATIOS,
  pricing: { kind: 'tokens', perMillionTokens: 2.5, perMillionTokensWithReference: 1.5 },
});

const tiny = VideoModelSettings.parse({
  task: 'text-to-video',
  durations: ['1s'],
  resolutions: ['480p'],
  aspectRatios: ['16:9'],
  pricing: { kind: 'tokens', perMillionTokens: '0.000001' },
});

const bySecond = VideoModelSettings.parse({
  task: 'text-to-video',
  durations: ['1s', '30s'],
  pricing: { kind: 'second', perSecond: 0.02 },
});

const byGeneration = VideoModelSettings.parse({
  task: 'text-to-video',
  durations: ['1 gen', '5s'],
  audio: true,
  audioConfigurable: true,
  pricing: { kind: 'generation', perGeneration: { silent: 0.28, sound: 0.44 } },
});

const upscale = VideoModelSettings.parse({
  task: 'upscale',
  pricing: {
    kind: 'upscale',
    tiers: [
      { maxHeight: 2160, perSecond: 0.1 },
      { maxHeight: 720, perSecond: 0.013 },
      { maxHeight: 1080, perSecond: 0.025 },
    ],
  },
});

function source(
  seconds: number,
  height: number,
  framesPerSecond = 25,
  width = (height * 16) / 9,
): Measured {
  return { source: { durationMs: seconds * 1_000, width, height, framesPerSecond } };
}

const reference = (seconds: number) => ({ referenceMs: Math.round(seconds * 1_000) });

/** Name, model, request, measurements, and the expected nano-USD, calculated by hand. */
const TABLE: [string, VideoModelSettings, PricedRequest, Measured, bigint][] = [
  // 5 × 0.012
  ['5 s at 480p', byResolution, { duration: '5s', resolution: '480p' }, {}, 60_000_000n],
  // 8 × 0.045; sound is on by default
  [
    '8 s at 720p with sound',
    byResolution,
    { duration: '8s', resolution: '720p' },
    {},
    360_000_000n,
  ],
  // 8 × 0.03
  [
    '8 s at 720p, silent',
    byResolution,
    { duration: '8s', resolution: '720p', audio: false },
    {},
    240_000_000n,
  ],
  // 30 × 0.045
  ['the longest', byResolution, { duration: '30s', resolution: '720p' }, {}, 1_350_000_000n],
  // (5 + 7.25) × 0.008
  [
    'with reference: its own tier, input and output',
    byResolution,
    { duration: '5s', resolution: '480p' },
    reference(7.25),
    98_000_000n,
  ],
  // (5 + 150) × 0.045; 720p has no reference tier
  [
    'with the longest reference and no tier of its own',
    byResolution,
    { duration: '5s', resolution: '720p' },
    reference(150),
    6_975_000_000n,
  ],
  // (6.4 + 6.4) × 0.008
  [
    'auto: as long as the source',
    byResolution,
    { duration: 'auto', resolution: '480p' },
    reference(6.4),
    102_400_000n,
  ],
  [
    'Auto is auto',
    byResolution,
    { duration: 'Auto', resolution: '480p' },
    reference(6.4),
    102_400_000n,
  ],
  // (4 + 4) × 0.008 and (30 + 30) × 0.008; the limits of the source are inclusive
  [
    '-1 with the shortest source',
    byResolution,
    { duration: '-1', resolution: '480p' },
    reference(4),
    64_000_000n,
  ],
  [
    '-1 with the longest source',
    byResolution,
    { duration: '-1', resolution: '480p' },
    reference(30),
    480_000_000n,
  ],
  // 1280 × 720 = 0.9216 MP × 5 × 0.01
  ['megapixels, 720p 16:9', byMegapixel, { duration: '5s', aspect_ratio: '16:9' }, {}, 46_080_000n],
  ['megapixels, upright', byMegapixel, { duration: '5s', aspect_ratio: '9:16' }, {}, 46_080_000n],
  // 720 × 720 = 0.5184
  ['megapixels, square', byMegapixel, { duration: '5s', aspect_ratio: '1:1' }, {}, 25_920_000n],
  // 1680 × 720 = 1.2096
  ['megapixels, wide', byMegapixel, { duration: '5s', aspect_ratio: '21:9' }, {}, 60_480_000n],
  // 853.3 → 854 × 480 = 0.40992
  [
    'megapixels, the longer side is even',
    byMegapixel,
    { duration: '5s', resolution: '480p', aspect_ratio: '16:9' },
    {},
    20_496_000n,
  ],
  // 480 × 600 = 0.288
  [
    'megapixels, 4:5',
    byMegapixel,
    { duration: '5s', resolution: '480p', aspect_ratio: '4:5' },
    {},
    14_400_000n,
  ],
  // 921,600 × 24 × 5 ÷ 1024 = 108,000 tokens × 2.5 ÷ 10^6
  [
    'tokens without reference',
    byTokens,
    { duration: '5s', aspect_ratio: '16:9' },
    {},
    270_000_000n,
  ],
  // 921,600 × 24 × 15 ÷ 1024 = 324,000 × 1.5 ÷ 10^6
  [
    'tokens with 10 s of reference',
    byTokens,
    { duration: '5s', aspect_ratio: '16:9' },
    reference(10),
    486_000_000n,
  ],
  // no reference seconds, but the reference tier: 108,000 × 1.5 ÷ 10^6
  [
    'tokens with a reference of 0 s',
    byTokens,
    { duration: '5s', aspect_ratio: '16:9' },
    reference(0),
    162_000_000n,
  ],
  // the largest frame of the model is 21:9: 1,209,600 × 24 × 12 ÷ 1024 = 340,200 × 1.5 ÷ 10^6
  [
    'tokens, adaptive counts as the largest frame',
    byTokens,
    { duration: 'auto', aspect_ratio: 'adaptive' },
    reference(6),
    510_300_000n,
  ],
  // 409,920 × 24 ÷ 1024 = 9,607.5 tokens × 2.5 ÷ 10^6 = 0.02401875
  [
    'tokens, a half token counts',
    byTokens,
    { duration: '1s', resolution: '480p', aspect_ratio: '16:9' },
    {},
    24_018_750n,
  ],
  // 9,607.5 × 1,000 nano ÷ 10^6 = 9.6075
  ['one rounding, half up, at the end', tiny, { duration: '1s', aspect_ratio: '16:9' }, {}, 10n],
  ['per second, 1 s', bySecond, { duration: '1s' }, {}, 20_000_000n],
  ['per second, 30 s', bySecond, { duration: '30s' }, {}, 600_000_000n],
  ['per generation', byGeneration, { duration: '1 gen' }, {}, 440_000_000n],
  [
    'per generation, silent, any length',
    byGeneration,
    { duration: '5s', audio: false },
    {},
    280_000_000n,
  ],
  // 360 × 2 = 720: 10 × 0.013
  ['upscale, the factor is 2', upscale, {}, source(10, 360), 130_000_000n],
  // 361 × 2 = 722: 10 × 0.025
  [
    'upscale, one pixel over the tier',
    upscale,
    { upscale_factor: 2 },
    source(10, 361),
    250_000_000n,
  ],
  // 540 × 4 = 2160: 10 × 0.10
  ['upscale by 4', upscale, { upscale_factor: 4 }, source(10, 540), 1_000_000_000n],
  ['upscale by 1', upscale, { upscale_factor: 1 }, source(10, 720), 130_000_000n],
  // 2 × 3840x360 has 5,529,600 pixels: more than 1920x1080, fewer than 3840x2160.
  ['upscale, very wide goes by its pixels', upscale, {}, source(10, 360, 25, 3840), 1_000_000_000n],
  ['upscale, a little wider than its tier', upscale, {}, source(10, 360, 25, 641), 250_000_000n],
  ['upscale, upright goes by its height', upscale, {}, source(10, 360, 25, 200), 130_000_000n],
  ['upscale, 48 frames are not fast', upscale, {}, source(10, 360, 48), 130_000_000n],
  ['upscale, 59.94 frames are: twice', upscale, {}, source(10, 360, 59.94), 260_000_000n],
  // 12.345 × 0.013
  ['upscale, parts of a second count', upscale, {}, source(12.345, 360), 160_485_000n],
  // 300 × 0.10
  [
    'upscale, the longest source',
    upscale,
    { upscale_factor: 2 },
    source(300, 1080),
    30_000_000_000n,
  ],
];

describe('quoteVideo(), against sums worked out by hand', () => {
  for (const [name, model, request, measured, expected] of TABLE) {
    test(name, () => assert.equal(quoteVideo(model, request, measured), expected));
  }

  test('a matched length needs a source of 4 to 30 seconds', () => {
    const request = { duration: 'auto', resolution: '480p' } as const;
    for (const measured of [{}, reference(3.999), reference(30.001), reference(0)]) {
      assert.throws(() => quoteVideo(byResolution, request, measured), { code: 'INVALID_REQUEST' });
    }
  });

  test('a source over the limit is 422, a result over the largest tier is 400', () => {
    const code = (measured: Measured): string => {
      try {
        quoteVideo(upscale, { upscale_factor: 4 }, measured);
      } catch (error) {
        if (error instanceof Fault) return `${error.status} ${error.code}`;
      }
      return 'none';
    };
    assert.equal(code(source(300.001, 360)), '422 VIDEO_DURATION_TOO_LONG');
    assert.equal(code(source(1, 540, 25, 961)), '400 INVALID_REQUEST');
    assert.equal(code(source(10, 541)), '400 INVALID_REQUEST');
  });

  test('frameSize() takes the default resolution and even sides', () => {
    assert.deepEqual(frameSize(byMegapixel, { aspect_ratio: '9:16' }), {
      width: 720,
      height: 1280,
    });
    assert.deepEqual(frameSize(byMegapixel, { resolution: '480p' }), { width: 1120, height: 480 });
    assert.equal(frameSize(upscale, {}), undefined);
  });
});

/** The field names in the `details` of the error. */
function objections(check: () => void): string[] {
  try {
    check();
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    assert.equal(error.status, 400);
    return Object.keys(error.options.details as object).filter((key) => key !== '_errors');
  }
  return [];
}

describe('what a model takes', () => {
  const quote = (model: VideoModelSettings, request: object): string[] =>
    objections(() => checkQuote(model, VideoQuoteRequest.parse({ model: 'm', ...request })));
  const queue = (model: VideoModelSettings, request: object): string[] =>
    objections(() => checkQueue(model, VideoQueueRequest.parse({ model: 'm', ...request })));

  test('each kind of pricing needs its fields in a quote', () => {
    assert.deepEqual(quote(byResolution, {}), ['duration', 'resolution']);
    assert.deepEqual(quote(byMegapixel, {}), ['duration', 'aspect_ratio']);
    assert.deepEqual(quote(byTokens, { duration: '5s' }), ['aspect_ratio']);
    assert.deepEqual(quote(bySecond, {}), ['duration']);
    assert.deepEqual(quote(bySecond, { duration: '1s' }), []);
    assert.deepEqual(quote(byGeneration, { duration: '1 gen' }), []);
    assert.deepEqual(quote(upscale, {}), ['video_url']);
    assert.deepEqual(quote(upscale, { video_url: 'https://example.com/a.mp4' }), []);
  });

  test('values that the model does not offer are named', () => {
    assert.deepEqual(quote(bySecond, { duration: '2s', resolution: '720p', aspect_ratio: '1:1' }), [
      'duration',
      'resolution',
      'aspect_ratio',
    ]);
    assert.deepEqual(quote(bySecond, { duration: '1s', upscale_factor: 2 }), ['upscale_factor']);
    assert.deepEqual(quote(upscale, { resolution: '2x', video_url: 'https://a.example/b' }), [
      'resolution',
    ]);
    const loud = { ...byGeneration, audioConfigurable: false };
    assert.deepEqual(quote(loud, { duration: '5s', audio: false }), ['audio']);
  });

  test('references and shapes that follow them belong to reference models', () => {
    const fixed = { duration: '5s', resolution: '480p' };
    assert.deepEqual(quote(bySecond, { duration: '1s', reference_video_total_duration: 5 }), [
      'reference_video_total_duration',
    ]);
    assert.deepEqual(quote(byResolution, { ...fixed, aspect_ratio: 'adaptive' }), ['aspect_ratio']);
    assert.deepEqual(
      quote(byResolution, {
        ...fixed,
        aspect_ratio: 'adaptive',
        reference_video_total_duration: 5,
      }),
      [],
    );
    const short = { ...byResolution, maxReferenceSeconds: 15 };
    assert.deepEqual(quote(short, { ...fixed, reference_video_total_duration: 16 }), [
      'reference_video_total_duration',
    ]);
  });

  test('a queue call needs a prompt and the media of its task, an upscale neither', () => {
    assert.deepEqual(queue(bySecond, { duration: '1s' }), ['prompt']);
    assert.deepEqual(queue(bySecond, { duration: '1s', prompt: 'x'.repeat(2_501) }), ['prompt']);
    assert.deepEqual(queue(bySecond, { duration: '1s', prompt: 'x'.repeat(2_500) }), []);
    const still = { ...bySecond, task: 'image-to-video' as const };
    assert.deepEqual(queue(still, { duration: '1s', prompt: 'x' }), ['image_url']);
    assert.deepEqual(queue(upscale, { video_url: 'data:video/mp4;base64,AAAA' }), []);
    const urls = ['https://example.com/a.mp4'];
    assert.deepEqual(queue(bySecond, { duration: '1s', prompt: 'x', reference_video_urls: urls }), [
      'reference_video_urls',
    ]);
  });

  test('videoConstraints() speaks the three model types of the wire', () => {
    const type = (model: VideoModelSettings): unknown => Object.entries(videoConstraints(model))[0];
    assert.deepEqual(type(bySecond), ['model_type', 'text-to-video']);
    assert.deepEqual(type(upscale), ['model_type', 'video']);
  });
});

describe('settings that contradict themselves are refused', () => {
  const base = { task: 'text-to-video', durations: ['5s'] };
  const cases: [string, object][] = [
    [
      'an upscaler without its pricing',
      { task: 'upscale', pricing: { kind: 'second', perSecond: 1 } },
    ],
    ['no length', { task: 'text-to-video', pricing: { kind: 'second', perSecond: 1 } }],
    [
      'a resolution without a rate',
      { ...base, resolutions: ['720p'], pricing: { kind: 'duration-resolution', rates: {} } },
    ],
    [
      'pixels without shapes',
      { ...base, resolutions: ['720p'], pricing: { kind: 'megapixel', perMegapixelSecond: 1 } },
    ],
    [
      '1 gen by the second',
      { ...base, durations: ['1 gen'], pricing: { kind: 'second', perSecond: 1 } },
    ],
    [
      'auto without a source',
      { ...base, durations: ['auto'], pricing: { kind: 'second', perSecond: 1 } },
    ],
    ['31 seconds', { ...base, durations: ['31s'], pricing: { kind: 'second', perSecond: 1 } }],
  ];
  for (const [name, settings] of cases) {
    test(name, () => assert.equal(VideoModelSettings.safeParse(settings).success, false));
  }
});
