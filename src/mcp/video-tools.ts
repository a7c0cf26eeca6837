/**
 * Tools for videos, which take minutes: `quote_video`, `generate_video`, `video_status` (which can wait
 * for the end), `cancel_video`.
 */
import * as z from 'zod';
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
  postJson,
  readJsonResponse,
  structured,
  withContent,
} from './tool.ts';

export interface VideoToolParts {
  readonly catalog: Catalog;
}

const MAX_PROMPT_CHARACTERS = 20_000;
const POLL_MS = 3 * SECOND_MS;
const MAX_WAIT_SECONDS = 300;
/** A larger video must be downloaded by its `download_url` or `POST /video/retrieve`. */
const MAX_VIDEO_BYTES = 32 * 1024 * 1024;

const Priced = {
  model: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .describe('A model id of list_models, which lists the supported values in `constraints`.'),
  duration: z.string().optional().describe('Duration such as `5s`.'),
  resolution: z.enum(VIDEO_RESOLUTIONS).optional(),
  aspect_ratio: z.enum(VIDEO_ASPECT_RATIOS).optional(),
  audio: z
    .boolean()
    .optional()
    .describe('Whether the video has sound, for models with optional sound.'),
};
const QueueId = z.string().min(1).max(100).describe('The queue_id of generate_video.');

const StatusInput = z.strictObject({
  queue_id: QueueId,
  wait_seconds: z
    .int()
    .min(0)
    .max(MAX_WAIT_SECONDS)
    .default(0)
    .describe('Maximum time to wait for the end.'),
  include_video: z
    .boolean()
    .default(false)
    .describe('Whether to return the video itself, up to 32 MiB.'),
});

const Quote = z.strictObject({ quote_usd: z.number() });
const Queued = z.strictObject({
  queue_id: z.string(),
  model: z.string(),
  quote_usd: z.number().describe('Price in USD; refunded if the video fails.'),
  download_url: z.string().optional().describe('Secret URL of the finished video.'),
});
const State = z.strictObject({
  queue_id: z.string(),
  status: z.enum(['PROCESSING', 'COMPLETED']),
  progress: z.number().nullable().optional().describe('Progress from 0 to 1.'),
  mime_type: z.string().optional().describe('Type of the finished video.'),
  size_bytes: z.int().optional(),
});
const Cancelled = z.strictObject({ queue_id: z.string(), status: z.string() });

export function videoTools({ catalog }: VideoToolParts): Tool[] {
  const about: About = (text) => () => (catalog.listed('video').length > 0 ? text : undefined);
  return [
    quoteTool(catalog, about),
    generateTool(catalog, about),
    statusTool(about),
    cancelTool(about),
  ];
}

/** The description of a tool; `undefined` without a video model. */
type About = (text: string) => () => string | undefined;

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
    about: about('Returns the price of a video in USD. Price: free.'),
    run: async ({ model, ...input }, call) => {
      const body = { ...input, model: modelOf(catalog, model) };
      const { quote } = await postJson(call, '/video/quote', body);
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
      image_url: z.string().optional().describe('First image: http(s) or data URL.'),
      ...Priced,
    }),
    output: Queued,
    isPaid: true,
    example: { prompt: 'A lighthouse in the fog.', duration: '5s' },
    about: about(
      'Queues a video and returns its queue_id at once; call video_status to wait for it. Price: that of quote_video; refunded if the video fails.',
    ),
    run: async ({ model, ...input }, call) => {
      const body = { ...input, model: modelOf(catalog, model) };
      const { quote: quote_usd, ...queued } = await postJson(call, '/video/queue', body);
      const { queue_id, model: used, download_url } = queued;
      return structured(Queued.parse({ queue_id, model: used, quote_usd, download_url }));
    },
  });
}

function statusTool(about: About): Tool {
  return defineTool({
    name: 'video_status',
    title: 'Get the status of a video',
    hints: { readOnlyHint: true, openWorldHint: false },
    input: StatusInput,
    output: State,
    about: about('Returns the progress of a video, or that it is finished. Price: free.'),
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
    about: about('Cancels an unfinished video and refunds it. Price: free.'),
    run: async (body, call) => {
      const { queue_id, status } = await postJson(call, '/video/cancel', body);
      return structured(Cancelled.parse({ queue_id, status }));
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
    const response = await call.run({ path: '/video/retrieve', body: { queue_id: queueId } });
    const mimeType = response.headers['content-type'] ?? '';
    if (!mimeType.startsWith('application/json')) return finished(input, mimeType, response);
    const { status, progress = null } = await readJsonResponse(response);
    // The video can only be downloaded by its secret URL.
    if (status === 'COMPLETED') return finishedResult(State.parse({ queue_id: queueId, status }));
    const nowMs = clock.monotonicMs();
    const seconds = Math.round((nowMs - startMs) / SECOND_MS);
    call.progress(seconds, 'The video is being made', input.wait_seconds);
    if (nowMs >= untilMs) {
      return structured(State.parse({ queue_id: queueId, status: 'PROCESSING', progress }));
    }
    await clock.sleep(Math.min(POLL_MS, untilMs - nowMs), signal);
  }
}

async function finished(
  { queue_id: queueId, include_video: isWanted }: z.infer<typeof StatusInput>,
  mimeType: string,
  response: InternalResponse,
): Promise<ToolResult> {
  const sizeBytes = Number(response.headers['content-length']);
  const state = State.parse({
    queue_id: queueId,
    status: 'COMPLETED',
    mime_type: mimeType,
    size_bytes: sizeBytes,
  });
  if (!isWanted) {
    response.body.destroy();
    return finishedResult(state);
  }
  if (sizeBytes > MAX_VIDEO_BYTES) {
    response.body.destroy();
    return failure(
      `The video has ${sizeBytes} bytes, and a tool returns at most ${MAX_VIDEO_BYTES}: download the download_url of generate_video`,
    );
  }
  const video = await readResponse(response, MAX_VIDEO_BYTES);
  const resource = { uri: `video:${queueId}`, mimeType, blob: video.toString('base64') };
  return withContent([{ type: 'resource', resource }], state);
}

function finishedResult(state: z.infer<typeof State>): ToolResult {
  return structured(
    state,
    `The video is finished: download the download_url of generate_video, or call again with include_video. ${JSON.stringify(state)}`,
  );
}
