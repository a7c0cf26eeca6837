/**
 * Properties of video models (`models[].video`), and the section `video`. A model has one kind of pricing,
 * which decides the request fields that a quote needs.
 */
import * as z from 'zod';

import { Usd, count, distinct, flag, secret, whole, group } from './setting-kinds.ts';

/** In the order of the specification. */
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

/** `1s` to `30s`; `-1`, `auto` and `Auto` follow the source, `1 gen` is a result of any length. */
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

/** One rate, or separate rates without and with sound. */
export type VideoRate = z.infer<typeof VideoRate>;
export const VideoRate = z.union([
  Usd,
  z.strictObject({
    silent: Usd.describe('Without sound.'),
    sound: Usd.describe('With sound.'),
  }),
]);

const withReference = (what: string) =>
  VideoRate.optional().describe(
    `${what} with reference videos, whose seconds are charged too. Default: the same rate.`,
  );

const DurationResolution = z.strictObject({
  kind: z.literal('duration-resolution').describe('USD per second, by resolution.'),
  rates: z
    .partialRecord(z.enum(VIDEO_RESOLUTIONS), VideoRate)
    .describe('USD per second by resolution.'),
  ratesWithReference: z
    .partialRecord(z.enum(VIDEO_RESOLUTIONS), VideoRate)
    .optional()
    .describe('USD per second by resolution with reference videos. Default: `rates`.'),
});

const Megapixel = z.strictObject({
  kind: z.literal('megapixel').describe('USD per second and megapixel of the frame.'),
  perMegapixelSecond: VideoRate.describe('USD per megapixel and second.'),
  perMegapixelSecondWithReference: withReference('USD per megapixel and second'),
});

const Tokens = z.strictObject({
  kind: z
    .literal('tokens')
    .describe('USD per 1,000,000 tokens. A token is 1,024 pixels of a frame.'),
  perMillionTokens: VideoRate.describe('USD per 1,000,000 tokens.'),
  perMillionTokensWithReference: withReference('USD per 1,000,000 tokens'),
  framesPerSecond: whole(24).describe('Frames per second in the token formula.'),
  pixelsPerToken: whole(1_024).describe('Pixels per token in the token formula.'),
});

const PerSecond = z.strictObject({
  kind: z.literal('second').describe('USD per second, independent of the resolution.'),
  perSecond: VideoRate.describe('USD per second.'),
  perSecondWithReference: withReference('USD per second'),
});

const Generation = z.strictObject({
  kind: z.literal('generation').describe('USD per result, independent of its duration.'),
  perGeneration: VideoRate.describe('USD per result.'),
});

const Upscale = z.strictObject({
  kind: z.literal('upscale').describe('USD per second of the source, by the height of the result.'),
  tiers: z
    .array(
      z.strictObject({
        maxHeight: count().describe('Maximum height of a result of this tier, in pixels.'),
        perSecond: Usd.describe('USD per second of the source.'),
      }),
    )
    .min(1)
    .superRefine(distinct('maxHeight', 'Another tier has this height'))
    .describe('Tiers by height of the result (source height × factor).'),
  fastAbove: whole(48).describe('Frames per second of a source above which `fastFactor` applies.'),
  fastFactor: whole(2).describe('Factor of the price for such sources.'),
  maxSourceSeconds: whole(300).describe(
    'Maximum duration of a source, in seconds; a longer one is rejected with 422.',
  ),
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
    .regex(
      /^[a-z][a-z0-9_]{0,39}$/,
      'Must be 1 to 40 lowercase letters, digits and underscores, and start with a letter',
    )
    .describe('Name of the consent, which is a member of `consents` in a request.'),
  version: z
    .string()
    .min(1)
    .max(40)
    .describe('Version of the policy. Consent to an older version is invalid.'),
  policyText: z.string().min(1).max(20_000).describe('Text of the policy.'),
  roles: z
    .array(z.string().regex(/^[a-z_]+$/))
    .default([])
    .describe(
      'Request members whose media need the consent, such as `image_url`. Default: all media.',
    ),
});

const VideoModel = z.strictObject({
  task: z.enum(VIDEO_TASKS).describe('Task of the model.'),
  pricing: VideoPricing.describe('Pricing of the model.'),
  durations: z.array(Duration).default([]).describe('Durations on offer.'),
  resolutions: z.array(z.enum(VIDEO_RESOLUTIONS)).default([]).describe('Resolutions on offer.'),
  defaultResolution: z
    .enum(VIDEO_RESOLUTIONS)
    .optional()
    .describe('Resolution of requests without one. Default: the first of `resolutions`.'),
  aspectRatios: z
    .array(z.enum(VIDEO_ASPECT_RATIOS))
    .default([])
    .describe('Aspect ratios on offer. Videos of requests without one have the first.'),
  audio: flag(false).describe('`true` if the result has sound.'),
  audioConfigurable: flag(false).describe(
    '`true` if a request can turn the sound off with `audio: false`.',
  ),
  promptCharacterLimit: whole(2_500, 20_000).describe('Maximum length of a prompt, in characters.'),
  maxReferenceSeconds: whole(150, 150).describe(
    'Maximum total duration of the reference videos of one request, in seconds.',
  ),
  downloadUrl: flag(false).describe(
    'Return a secret download URL instead of the video in `/video/retrieve`.',
  ),
  consent: Consent.optional().describe(
    'Consent that requests with media need. Without it they get 409 with the policy.',
  ),
  expectedSeconds: whole(120).describe(
    'Estimated duration of a job in seconds, used until there are measurements.',
  ),
});

/** Properties that only models of type `video` have. */
export type VideoModelSettings = z.infer<typeof VideoModelSettings>;
export const VideoModelSettings = VideoModel.superRefine((model, context) => {
  for (const message of contradictions(model)) {
    context.addIssue({ code: 'custom', message });
  }
});

/** Returns a message for each setting that no request could satisfy. */
function contradictions({ task, pricing, ...model }: z.infer<typeof VideoModel>): string[] {
  const { durations, resolutions, defaultResolution } = model;
  const together = 'The task `upscale` needs the pricing `upscale`, and the reverse';
  if (pricing.kind === 'upscale') return task === 'upscale' ? [] : [together];
  const isFlat = pricing.kind === 'generation';
  const follows = durations.some((text) => text === '-1' || /^auto$/i.test(text));
  const rates = pricing.kind === 'duration-resolution' ? pricing.rates : undefined;
  const unrated = resolutions.filter((name) => rates !== undefined && rates[name] === undefined);
  const countsPixels = pricing.kind === 'megapixel' || pricing.kind === 'tokens';
  const rules: readonly (readonly [isBroken: boolean, message: string])[] = [
    [task === 'upscale', together],
    [durations.length === 0, '`durations` must contain at least one duration'],
    [!isFlat && durations.includes('1 gen'), 'The duration `1 gen` needs the pricing `generation`'],
    [
      !isFlat && follows && task !== 'reference-to-video',
      'The durations `-1` and `auto` need the task `reference-to-video`',
    ],
    [unrated.length > 0, `\`rates\` has no rate for ${unrated.join(', ')}`],
    [rates !== undefined && resolutions.length === 0, '`resolutions` must contain at least one'],
    [
      countsPixels && resolutions.length === 0,
      '`resolutions` must contain at least one, because the price counts pixels',
    ],
    [
      countsPixels && model.aspectRatios.length === 0,
      '`aspectRatios` must contain at least one, because the price counts pixels',
    ],
    [
      defaultResolution !== undefined && !resolutions.includes(defaultResolution),
      '`defaultResolution` is not one of `resolutions`',
    ],
  ];
  return rules.flatMap(([isBroken, message]) => (isBroken ? [message] : []));
}

export const VideoSection = group({
  keepHours: whole(24).describe('Hours until a finished video is deleted.'),
  maxJobHours: whole(2).describe('Hours after which a running job fails and is refunded.'),
  maxSilenceMinutes: whole(10).describe(
    'Minutes without a response of the engine after which a job fails and is refunded.',
  ),
  maxOpenJobs: whole(20).describe('Maximum number of waiting and running jobs of one caller.'),
  webhooks: flag(false).describe('Accept a `webhook_url` in requests.'),
  webhookSecret: secret()
    .optional()
    .describe('Secret from which the signing secret of each caller is derived.'),
}).refine((section) => !section.webhooks || section.webhookSecret !== undefined, {
  message: '`webhooks` needs a `webhookSecret`',
  path: ['webhookSecret'],
});
