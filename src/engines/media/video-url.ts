/** Videos that an engine states by a URL: finds the URL in a job, and fetches it through the guard. */
import { open } from 'node:fs/promises';
import * as z from 'zod';
import { Fault } from '../../core/faults.ts';
import type { Guard } from '../../net/guard.ts';

export interface UrlFetching {
  readonly guard: Guard;
  readonly fetchTimeoutMs: number;
}

export interface DownloadOptions {
  /** Whether a video of this size may be stored; called with each received piece. */
  readonly canStore: (sizeBytes: number) => boolean;
  readonly signal: AbortSignal;
}

type FetchResult =
  | { readonly kind: 'done' }
  | { readonly kind: 'too-large' | 'away'; readonly detail: string };

/** Upper bound of a video, whatever the free disk space is. */
export const MAX_VIDEO_BYTES = 2_000_000_000;
const MAX_REDIRECTS = 5;

const UrlText = z.string().regex(/^https?:/i);
const UrlPlace = UrlText.or(
  z.object({ url: UrlText.nullish().catch(null), video_url: UrlText.nullish().catch(null) }),
);
const Places = UrlPlace.or(z.array(UrlPlace)).nullish().catch(null);
const Finished = z.object({
  url: Places,
  video_url: Places,
  output: Places,
  video: Places,
  data: Places,
  result: Places,
});

/** The first URL of a video in the places where engines state it. */
export function urlIn(body: unknown): string | undefined {
  const places = Finished.safeParse(body).data;
  if (places === undefined) return undefined;
  const { url, video_url: videoUrl, output, video, data, result } = places;
  return [url, videoUrl, output, video, data, result].flat().map(urlOf).find(Boolean);
}

function urlOf(place: z.infer<typeof UrlPlace> | undefined | null): string | undefined {
  return typeof place === 'string' ? place : (place?.url ?? place?.video_url ?? undefined);
}

/** Writes the video of a URL to `path`. A failure is a result, as that of an engine. */
export async function fetchVideo(
  { guard, fetchTimeoutMs: timeoutMs }: UrlFetching,
  url: string,
  path: string,
  { canStore, signal }: DownloadOptions,
): Promise<FetchResult> {
  const bounds = { maxBytes: MAX_VIDEO_BYTES, timeoutMs, maxRedirects: MAX_REDIRECTS };
  const file = await open(path, 'w');
  let sizeBytes = 0;
  const write = async (chunk: Buffer): Promise<void> => {
    sizeBytes += chunk.length;
    if (!canStore(sizeBytes)) throw new Fault('PAYLOAD_TOO_LARGE');
    await file.writeFile(chunk);
  };
  try {
    await guard.stream(url, write, { ...bounds, signal });
    return { kind: 'done' };
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    const detail = `${error.message}, at ${sizeBytes} bytes of the video`;
    return { kind: error.code === 'PAYLOAD_TOO_LARGE' ? 'too-large' : 'away', detail };
  } finally {
    await file.close();
  }
}
