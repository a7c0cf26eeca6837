/**
 * Video models: what a request may ask of each, and how its price is found. One model has one kind
 * of pricing; the kind decides which request fields are needed for a quote.
 *
 * The section of the service (`video`) says how long results are kept.
 */
import { z } from 'zod';

import { Usd, count, flag, secret, whole, group } from './setting-kinds.ts';

/** The values of the specification, in its order. */
export const VIDEO_RESOLUTIONS = [
  '256p',
  '360p',
  '480p',
  '540p',
  '580p',
  '720p',
  '1080p',
  '1440p',
  '2160p',
  '4k',
  '2x',
  '4x',
  '2K',
  '768P',
  'true_1080p',
] as const;
export type VideoResolution = (typeof VIDEO_RESOLUTIONS)[number];

export const VIDEO_ASPECT_RATIOS = [
  '1:1',
  '2:3',
  '3:2',
  '3:4',
  '4:3',
  '4:5',
  '5:4',
  '9:16',
  '9:21',
  '16:9',
  '21:9',
  'adaptive',
  'auto',
] as const;

/** `1s` to `30s`, and the words for "as long as the source" and "one piece". */
export const VIDEO_DURATIONS: readonly string[] = [
  ...Array.from({ length: 30 }, (_, index) => `${index + 1}s`),
  '-1',
  '1 gen',
  'auto',
  'Auto',
];

const Duration = z
  .string()
  .refine((text) => VIDEO_DURATIONS.includes(text), 'Must be 1s to 30s, -1, auto, Auto or 1 gen');

/** One rate, or one without and one with sound. */
export type VideoRate = z.infer<typeof VideoRate>;
export const VideoRate = z.union([
  Usd,
  z.strictObject({
    silent: Usd.describe('Without sound.'),
    sound: Usd.describe('With sound, the default of a request.'),
  }),
]);

const withReference = (what: string) =>
  VideoRate.optional().describe(
    `${what} when reference videos are given; their seconds are paid like those of the result. Default: the same rate.`,
  );

const DurationResolution = z.strictObject({
  kind: z.literal('duration-resolution').describe('USD per second, by resolution.'),
  rates: z
    .partialRecord(z.enum(VIDEO_RESOLUTIONS), VideoRate)
    .describe('USD per second for each resolution on offer.'),
  ratesWithReference: z
    .partialRecord(z.enum(VIDEO_RESOLUTIONS), VideoRate)
    .optional()
    .describe('The same when reference videos are given. Default: `rates`.'),
});

const Megapixel = z.strictObject({
  kind: z.literal('megapixel').describe('USD per megapixel of the frame and second.'),
  perMegapixelSecond: VideoRate.describe('USD per megapixel and second.'),
  perMegapixelSecondWithReference: withReference('USD per megapixel and second'),
});

const Tokens = z.strictObject({
  kind: z.literal('tokens').describe('USD per million tokens: pixels of all frames by 1024.'),
  perMillionTokens: VideoRate.describe('USD per 1,000,000 tokens.'),
  perMillionTokensWithReference: withReference('USD per 1,000,000 tokens'),
  framesPerSecond: whole(24).describe('Frames of a second, in the token formula.'),
  pixelsPerToken: whole(1_024).describe('Pixels of a token, in the token formula.'),
});

const PerSecond = z.strictObject({
  kind: z.literal('second').describe('USD per second, whatever the resolution.'),
  perSecond: VideoRate.describe('USD per second.'),
  perSecondWithReference: withReference('USD per second'),
});

const Generation = z.strictObject({
  kind: z.literal('generation').describe('USD per result, whatever its length.'),
  perGeneration: VideoRate.describe('USD per result.'),
});

const Upscale = z.strictObject({
  kind: z.literal('upscale').describe('USD per second of the source, by output height.'),
  tiers: z
    .array(
      z.strictObject({
        maxHeight: count().describe('Largest output height of this tier, in pixels.'),
        perSecond: Usd.describe('USD per second of the source.'),
      }),
    )
    .min(1)
    .describe('Tiers by output height (source height × factor).'),
  fastAbove: whole(48).describe('Frames per second above which `fastFactor` counts.'),
  fastFactor: whole(2).describe('Times the price for fast sources.'),
  maxSourceSeconds: whole(300).describe('Longest source; longer is 422.'),
});

export type VideoPricing = z.infer<typeof VideoPricing>;
export const VideoPricing = z.discriminatedUnion('kind', [
  DurationResolution,
  Megapixel,
  Tokens,
  PerSecond,
  Generation,
  Upscale,
]);

const VIDEO_TASKS = ['text-to-video', 'image-to-video', 'reference-to-video', 'upscale'] as const;

const Consent = z.strictObject({
  flow: z
    .string()
    .regex(/^[a-z][a-z0-9_]{0,39}$/, 'Lowercase letters, digits and underscores')
    .describe('Name of the consent; `consents` of a request has it as a member.'),
  version: z.string().min(1).max(40).describe('Version of the policy; an older one is no consent.'),
  policyText: z.string().min(1).max(20_000).describe('What is agreed to.'),
  roles: z
    .array(z.string().regex(/^[a-z_]+$/))
    .default([])
    .describe('Members whose media need it, such as `image_url`. Default: all media.'),
});

const VideoModel = z.strictObject({
  task: z.enum(VIDEO_TASKS).describe('What the model makes a video of.'),
  pricing: VideoPricing.describe('How its price is found.'),
  durations: z.array(Duration).default([]).describe('Lengths on offer.'),
  resolutions: z.array(z.enum(VIDEO_RESOLUTIONS)).default([]).describe('Resolutions on offer.'),
  defaultResolution: z
    .enum(VIDEO_RESOLUTIONS)
    .optional()
    .describe('Taken when a request names none. Default: the first of `resolutions`.'),
  aspectRatios: z.array(z.enum(VIDEO_ASPECT_RATIOS)).default([]).describe('Shapes on offer.'),
  audio: flag(false).describe('The result has sound.'),
  audioConfigurable: flag(false).describe('`audio: false` turns the sound off.'),
  promptCharacterLimit: whole(2_500, 20_000).describe('Longest prompt.'),
  maxReferenceSeconds: whole(150, 150).describe(
    'Reference videos of one request, in seconds altogether.',
  ),
  downloadUrl: flag(false).describe(
    'Results are fetched from a secret address instead of `/video/retrieve`.',
  ),
  consent: Consent.optional().describe(
    'Media of a request are taken only with a consent to a policy: 409 with the policy without it.',
  ),
  expectedSeconds: whole(120).describe('How long a result takes, told until there is experience.'),
});

/** What belongs to a model of type `video` besides what all models have. */
export type VideoModelSettings = z.infer<typeof VideoModelSettings>;
export const VideoModelSettings = VideoModel.superRefine((model, context) => {
  for (const message of contradictions(model)) {
    context.addIssue({ code: 'custom', message });
  }
});

/** What a request could never fulfil. */
function contradictions({ task, pricing, ...model }: z.infer<typeof VideoModel>): string[] {
  const { durations, resolutions, defaultResolution } = model;
  const together = 'The task `upscale` and the pricing `upscale` belong together';
  if (pricing.kind === 'upscale') return task === 'upscale' ? [] : [together];
  const isFlat = pricing.kind === 'generation';
  const follows = durations.some((text) => text === '-1' || /^auto$/i.test(text));
  const rates = pricing.kind === 'duration-resolution' ? pricing.rates : undefined;
  const unrated = resolutions.filter((name) => rates !== undefined && rates[name] === undefined);
  const countsPixels = pricing.kind === 'megapixel' || pricing.kind === 'tokens';
  const rules: readonly (readonly [isBroken: boolean, message: string])[] = [
    [task === 'upscale', together],
    [durations.length === 0, '`durations` must name at least one length'],
    [!isFlat && durations.includes('1 gen'), 'The duration `1 gen` needs the pricing `generation`'],
    [
      !isFlat && follows && task !== 'reference-to-video',
      'The durations `-1` and `auto` follow a reference video: the task must be reference-to-video',
    ],
    [unrated.length > 0, `\`rates\` has no rate for ${unrated.join(', ')}`],
    [rates !== undefined && resolutions.length === 0, '`resolutions` must name at least one'],
    [
      countsPixels && resolutions.length === 0,
      '`resolutions` must name at least one, since the price counts pixels',
    ],
    [
      countsPixels && model.aspectRatios.length === 0,
      '`aspectRatios` must name at least one, since the price counts pixels',
    ],
    [
      defaultResolution !== undefined && !resolutions.includes(defaultResolution),
      '`defaultResolution` is not one of `resolutions`',
    ],
  ];
  return rules.flatMap(([isBroken, message]) => (isBroken ? [message] : []));
}

export const VideoSection = group({
  keepHours: whole(24).describe('Finished videos are deleted after this time.'),
  maxJobHours: whole(2).describe('A job that takes longer fails and is refunded.'),
  maxSilenceMinutes: whole(10).describe(
    'A job whose engine does not answer for so long fails and is refunded.',
  ),
  maxOpenJobs: whole(20).describe('Jobs of one caller that may wait or run at once.'),
  webhooks: flag(false).describe('Callers may name a `webhook_url`.'),
  webhookSecret: secret()
    .optional()
    .describe('Secret from which the signing secret of each caller is derived.'),
}).refine((section) => !section.webhooks || section.webhookSecret !== undefined, {
  message: '`webhooks` needs a `webhookSecret`',
  path: ['webhookSecret'],
});
