/**
 * `GET` and `DELETE /video/download/{token}`: the secret address of a result, without a key. The
 * token is the only credential; it stands in no log.
 */
import { Fault } from '../../core/faults.ts';
import type { Clock } from '../../core/clock.ts';
import type { Windows } from '../../billing/limits/limits.ts';
import type { Video } from '../video.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { type Route, get, remove } from '../../http/route.ts';
import { VIDEO_DOWNLOAD, VIDEO_REVOKE } from './describe.ts';
import { sendFile } from '../../http/send-file.ts';

export interface VideoDownloadParts {
  readonly video: Video;
  readonly windows: Windows;
  readonly clock: Clock;
}

/** Per address; tokens of 256 bits cannot be guessed, but a disk can be kept busy. */
const DOWNLOADS_PER_MINUTE = 120;
const PATH = '/video/download/:token';
const TOKEN = /^[A-Za-z0-9_-]{43}$/;
const MS_PER_SECOND = 1_000;
const EXTENSIONS: Readonly<Record<string, string>> = {
  'video/quicktime': 'mov',
  'video/webm': 'webm',
};

export function videoDownloadRoutes(parts: VideoDownloadParts): Route[] {
  return [
    get(PATH, 'public', VIDEO_DOWNLOAD, async (context) => {
      const media = await parts.video.openDownload(await tokenOf(parts, context));
      const extension = EXTENSIONS[media.mimeType] ?? 'mp4';
      context.set('content-disposition', `attachment; filename="video.${extension}"`);
      await sendFile(context, media);
    }),
    remove(PATH, 'public', VIDEO_REVOKE, async (context) => {
      await parts.video.revokeDownload(await tokenOf(parts, context));
      await context.json(200, { success: true });
    }),
  ];
}

async function tokenOf(parts: VideoDownloadParts, context: RequestContext): Promise<string> {
  const nowMs = parts.clock.nowMs();
  const bucket = `address:${context.countedAddress}|video-download`;
  const taken = await parts.windows.take(
    { bucket, tokens: 0, requestLimit: DOWNLOADS_PER_MINUTE, tokenLimit: 0 },
    nowMs,
  );
  if (!taken.ok) {
    throw new Fault('RATE_LIMIT_EXCEEDED', {
      message: `At most ${DOWNLOADS_PER_MINUTE} downloads a minute from one address`,
      retryAfterSeconds: (taken.state.resetsAtMs - nowMs) / MS_PER_SECOND,
    });
  }
  const token = context.parameters['token'] ?? '';
  if (!TOKEN.test(token)) throw new Fault('MEDIA_NOT_FOUND');
  return token;
}
