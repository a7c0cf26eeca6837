/**
 * The tools around videos, which take minutes: a quote, a request that is queued, a look at how far it
 * is (or a wait for its end), and a cancellation.
 */
import { z } from 'zod';
import type { Catalog } from '../catalog/catalog.ts';
import { SECOND_MS } from '../core/clock.ts';
import { VIDEO_ASPECT_RATIOS, VIDEO_RESOLUTIONS } from '../config/config.ts';
import { type InternalResponse, readResponse } from '../http/internal-call.ts';
import {
  type Tool,
  type ToolCall,
  type ToolResult,
  defineTool,
  failure,
  readJsonResponse,
  structured,
  withContent,
} from './tool.ts';

export interface VideoToolParts {
  readonly catalog: Catalog;
}

const MAX_PROMPT_CHARACTERS = 20_000;
const LOOK_EVERY_MS = 3 * SECOND_MS;
const MAX_WAIT_SECONDS = 300;
/** A film that is larger is fetched by its `download_url`, or by `POST /video/retrieve`. */
const MAX_FILM_BYTES = 32 * 1024 * 1024;

const Priced = {
  model: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .describe('A model id of list_models; what it takes stands in its `constraints`.'),
  duration: z.string().optional().describe('Such as `5s`.'),
  resolution: z.enum(VIDEO_RESOLUTIONS).optional(),
  aspect_ratio: z.enum(VIDEO_ASPECT_RATIOS).optional(),
  audio: z.boolean().optional().describe('Whether the video has sound, where that can be chosen.'),
};
const QueueId = z.string().min(1).max(100).describe('From generate_video.');

const StatusInput = z.strictObject({
  queue_id: QueueId,
  wait_seconds: z
    .int()
    .min(0)
    .max(MAX_WAIT_SECONDS)
    .default(0)
    .describe('Wait so long for its end.'),
  include_video: z
    .boolean()
    .default(false)
    .describe('Return the video itself, up to 32 MiB, in place of where it is.'),
});

const Quote = z.strictObject({ quote_usd: z.number() });
const Queued = z.strictObject({
  queue_id: z.string(),
  model: z.string(),
  quote_usd: z.number().describe('Set aside now, and taken when the video is there.'),
  download_url: z.string().optional().describe('Secret address of the video, once it is there.'),
});
const State = z.strictObject({
  queue_id: z.string(),
  status: z.enum(['PROCESSING', 'COMPLETED']),
  progress: z.number().nullable().optional().describe('0 to 1.'),
  mime_type: z.string().optional().describe('Of the video that is there.'),
  size_bytes: z.int().optional(),
});
const Cancelled = z.strictObject({ queue_id: z.string(), status: z.string() });

export function videoTools({ catalog }: VideoToolParts): Tool[] {
  const about = (words: string) => () => (catalog.listed('video').length > 0 ? words : undefined);
  return [
    quoteTool(catalog, about),
    generateTool(catalog, about),
    statusTool(about),
    cancelTool(about),
  ];
}

/** What a tool says where there is a model of videos. */
type About = (words: string) => () => string | undefined;

function modelOf(catalog: Catalog, model: string | undefined): string | undefined {
  return model ?? (catalog.holderOf('default', 'video') ?? catalog.listed('video')[0])?.id;
}

function quoteTool(catalog: Catalog, about: About): Tool {
  return defineTool({
    name: 'quote_video',
    title: 'Quote the price of a video',
    hints: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
    input: z.strictObject(Priced),
    output: Quote,
    about: about('Says what a video would cost, in USD. Price: free.'),
    run: async ({ model, ...input }, call) => {
      const body = { ...input, model: modelOf(catalog, model) };
      const { quote } = await readJsonResponse(await call.run({ path: '/video/quote', body }));
      return structured(Quote.parse({ quote_usd: quote }));
    },
  });
}

function generateTool(catalog: Catalog, about: About): Tool {
  return defineTool({
    name: 'generate_video',
    title: 'Generate a video',
    hints: { readOnlyHint: false, destructiveHint: false, openWorldHint: true },
    input: z.strictObject({
      prompt: z.string().min(1).max(MAX_PROMPT_CHARACTERS),
      image_url: z.string().optional().describe('The first picture: http(s) or data URL.'),
      ...Priced,
    }),
    output: Queued,
    isPaid: true,
    example: { prompt: 'A lighthouse in the fog.', duration: '5s' },
    about: about(
      'Queues a video and returns its queue_id at once; ask video_status for it. Price: what quote_video says, set aside now and taken when the video is there; one that fails is free.',
    ),
    run: async ({ model, ...input }, call) => {
      const body = { ...input, model: modelOf(catalog, model) };
      const queued = await readJsonResponse(await call.run({ path: '/video/queue', body }));
      const { queue_id, quote: quote_usd, download_url } = queued;
      return structured(
        Queued.parse({ queue_id, model: queued['model'], quote_usd, download_url }),
      );
    },
  });
}

function statusTool(about: About): Tool {
  return defineTool({
    name: 'video_status',
    title: 'See how far a video is',
    hints: { readOnlyHint: true, openWorldHint: false },
    input: StatusInput,
    output: State,
    about: about('Says how far a video is, or that it is there. Price: free.'),
    run: videoStatus,
  });
}

function cancelTool(about: About): Tool {
  return defineTool({
    name: 'cancel_video',
    title: 'Cancel a video',
    hints: {
      readOnlyHint: false,
      destructiveHint: true,
      idempotentHint: true,
      openWorldHint: false,
    },
    input: z.strictObject({ queue_id: QueueId }),
    output: Cancelled,
    about: about('Ends a video that is not done; what was set aside is back. Price: free.'),
    run: async (body, call) => {
      const answer = await readJsonResponse(await call.run({ path: '/video/cancel', body }));
      return structured(
        Cancelled.parse({ queue_id: answer['queue_id'], status: answer['status'] }),
      );
    },
  });
}

async function videoStatus(
  input: z.infer<typeof StatusInput>,
  call: ToolCall,
): Promise<ToolResult> {
  const { clock, signal } = call;
  const { queue_id: queueId } = input;
  const startMs = clock.monotonicMs();
  const untilMs = startMs + input.wait_seconds * SECOND_MS;
  for (;;) {
    const answer = await call.run({ path: '/video/retrieve', body: { queue_id: queueId } });
    const mimeType = answer.headers['content-type'] ?? '';
    if (!mimeType.startsWith('application/json')) return finished(input, mimeType, answer);
    const { status, progress = null } = await readJsonResponse(answer);
    // Where it is fetched by its secret address only.
    if (status === 'COMPLETED') return told(State.parse({ queue_id: queueId, status }));
    const nowMs = clock.monotonicMs();
    const seconds = Math.round((nowMs - startMs) / SECOND_MS);
    call.progress(seconds, 'The video is being made', input.wait_seconds);
    if (nowMs >= untilMs) {
      return structured(State.parse({ queue_id: queueId, status: 'PROCESSING', progress }));
    }
    await clock.sleep(Math.min(LOOK_EVERY_MS, untilMs - nowMs), signal);
  }
}

async function finished(
  { queue_id: queueId, include_video: isWanted }: z.infer<typeof StatusInput>,
  mimeType: string,
  answer: InternalResponse,
): Promise<ToolResult> {
  const sizeBytes = Number(answer.headers['content-length']);
  const state = State.parse({
    queue_id: queueId,
    status: 'COMPLETED',
    mime_type: mimeType,
    size_bytes: sizeBytes,
  });
  if (!isWanted) {
    answer.body.destroy();
    return told(state);
  }
  if (sizeBytes > MAX_FILM_BYTES) {
    answer.body.destroy();
    return failure(
      `The video has ${sizeBytes} bytes, and a tool returns at most ${MAX_FILM_BYTES}: fetch the download_url of generate_video`,
    );
  }
  const film = await readResponse(answer, MAX_FILM_BYTES);
  const resource = { uri: `video:${queueId}`, mimeType, blob: film.toString('base64') };
  return withContent([{ type: 'resource', resource }], state);
}

function told(state: z.infer<typeof State>): ToolResult {
  return structured(
    state,
    `The video is there: fetch the download_url of generate_video, or ask again with include_video. ${JSON.stringify(state)}`,
  );
}
