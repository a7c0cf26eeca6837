/**
 * `GET` and `DELETE /video/download/{token}`: the secret URL of a result, without an API key. The
 * token is the only credential and is never logged.
 */
import { Fault } from '../../core/faults.ts';
import type { Video } from '../video.ts';
import { type LimitParts, limitRequests } from '../../http/limit-requests.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { type Route, get, remove } from '../../http/route.ts';
import { VIDEO_DOWNLOAD, VIDEO_REVOKE } from './describe.ts';
import { sendFile } from '../../http/send-file.ts';

export interface VideoDownloadParts extends LimitParts {
  readonly video: Video;
}

/** Per address. Tokens of 256 bits cannot be guessed, but downloads load the disk. */
const DOWNLOADS_PER_MINUTE = 120;
const PATH = '/video/download/:token';
const TOKEN = /^[A-Za-z0-9_-]{43}$/;
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
  const bucket = `address:${context.countedAddress}|video-download`;
  const message = `At most ${DOWNLOADS_PER_MINUTE} downloads a minute from one address`;
  await limitRequests(parts, bucket, DOWNLOADS_PER_MINUTE, message);
  const token = context.parameters['token'] ?? '';
  if (!TOKEN.test(token)) throw new Fault('MEDIA_NOT_FOUND');
  return token;
}
