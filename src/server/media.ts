/** Composes images, background removal, video, speech and transcription. */
import { join } from 'node:path';
import type { LargeBodies } from './large-bodies.ts';
import type { HttpServer } from '../http/http.ts';
import type { ReadLargeJson } from '../http/read-request.ts';
import { imagesEditsRoute } from '../images/images-edits/images-edits.ts';
import { imagesGenerationsRoute } from '../images/images-generations/images-generations.ts';
import { imageBackgroundRemoveRoute } from '../images/image-background-remove/image-background-remove.ts';
import { videoDownloadRoutes } from '../video/video-download/video-download.ts';
import { videoRoutes } from '../video/video-generation/video-generation.ts';
import { videoTranscriptionsRoute } from '../audio/video-transcriptions/video-transcriptions.ts';
import { audioSpeechRoute } from '../audio/audio-speech/audio-speech.ts';
import {
  audioTranscriptionsRoute,
  audioTranslationsRoute,
} from '../audio/audio-transcriptions/audio-transcriptions.ts';
import { maxCallerMb, maxDownloadBytes } from '../config/config.ts';
import type { Documents } from '../documents/documents.ts';
import { Media, RemoteSandbox, VideosClient } from '../engines/media/media.ts';
import { ResponseHeaders } from '../http/response-headers.ts';
import { LearnedFields } from '../engines/learned-fields.ts';
import { videoCheck } from '../video/check-video.ts';
import { MediaFiles } from '../documents/media-files.ts';
import { VideoQuotes } from '../video/quote-video.ts';
import { videoMoney } from '../video/video-money.ts';
import { onDemand } from '../core/on-demand.ts';
import { SECOND_MS } from '../core/clock.ts';
import type { VideoCallbacks } from '../video/job.ts';
import { Video } from '../video/video.ts';
import type { Feature } from '../http/route.ts';
import { FailedRequests } from './failed-requests.ts';
import type { FeatureParts } from './feature-parts.ts';
import { openWorkFolder } from '../engines/work-folder.ts';

const MB = 1_000_000;
/** Estimate for an engine without a measurement. */
const USUAL_SECONDS = 120;

export interface MediaFeatureParts {
  readonly documents: Documents;
  readonly callbacks: VideoCallbacks | undefined;
  /** Prefix of every path in a response. */
  readonly basePath: string;
  readonly largeBodies: LargeBodies;
  readonly server: Pick<HttpServer, 'bodyMemory'>;
}

export function mediaFeature(shared: FeatureParts, parts: MediaFeatureParts): Feature {
  const { documents, callbacks, basePath, largeBodies } = parts;
  const { bodyMemory } = parts.server;
  const { catalog, engines, sales, rateOf, windows, guard, clock, log } = shared;
  const config = shared.config.current;
  let folder: ReturnType<typeof openWorkFolder> | undefined;
  const work = onDemand(() => (folder = openWorkFolder(join(config.dataFolder, 'work'), shared)));
  const sandbox = new RemoteSandbox();
  const media = onDemand(() => openMedia(shared, sandbox));
  const fetchTimeoutMs = config.media.downloadTimeoutSeconds * SECOND_MS;
  const video = openVideo(shared, media, callbacks);
  const files = new MediaFiles({
    guard,
    folder: async () => (await work()).path,
    timeoutMs: fetchTimeoutMs,
    maxBytes: config.media.maxStoredMb * MB,
    maxCallerBytes: maxCallerMb(config.media, config.video.maxOpenJobs) * MB,
    stored: (holder) => video.storedBytes(holder),
  });
  const maxBytes = maxDownloadBytes(config.media);
  const readLargeJson: ReadLargeJson = (bytes, caller) => largeBodies.json(bytes, caller);
  const serviceName = config.service.name;
  const headers = new ResponseHeaders({ serviceName, clock });
  const common = { catalog, engines, sales, headers, clock, log, rateOf, readLargeJson };
  const learned = new LearnedFields(clock);
  const drawing = { ...common, documents, files, media, guard, fetchTimeoutMs, learned };
  const { fileLimitBytes } = config.http;
  const hearing = {
    ...common,
    files,
    media: media,
    learned,
    maxSeconds: config.media.maxTranscriptionSeconds,
  };
  const hearingFiles = {
    ...hearing,
    maxFileBytes: Math.min(fileLimitBytes, maxBytes),
  };
  const reading = { files, media: media, maxBytes };
  return {
    routes: [
      imageBackgroundRemoveRoute({ ...drawing, bodyMemory, fileLimitBytes }),
      imagesGenerationsRoute(drawing),
      imagesEditsRoute({ ...drawing, bodyMemory, maxFileBytes: fileLimitBytes }),
      audioSpeechRoute({ ...common, files, media, learned }),
      ...videoRoutes({
        ...common,
        ...reading,
        guard,
        video,
        quotes: new VideoQuotes({ ...common, ...reading, windows }),
        sendsWebhooks: callbacks !== undefined,
        docsUrl: () => {
          const { service, publicUrl } = shared.config.current;
          return service.docsUrl ?? `${publicUrl}/docs`;
        },
        plans: () => shared.config.current.resolvedPlans,
        publicBase: () => shared.config.current.publicUrl + basePath,
      }),
      ...videoDownloadRoutes({ video, windows, clock }),
      videoTranscriptionsRoute({ ...hearing, maxBytes }),
      audioTranscriptionsRoute(hearingFiles),
      audioTranslationsRoute(hearingFiles),
    ],
    // The lock of the data folder guarantees it.
    start: () => video.start({ alone: shared.stores.store.dialect === 'sqlite' }),
    close: async () => {
      try {
        await video.stop();
        await sandbox.close();
      } finally {
        await (await folder?.catch(() => undefined))?.remove();
      }
    },
  };
}

function openMedia({ config, clock, log }: FeatureParts, { run }: RemoteSandbox): Promise<Media> {
  const { media, searchPath, dataFolder } = config.current;
  return Media.open({
    dataFolder,
    ffmpeg: media.ffmpeg,
    ffprobe: media.ffprobe,
    searchPath,
    limits: {
      readTimeoutMs: media.decodeTimeoutSeconds * SECOND_MS,
      writeTimeoutMs: media.encodeTimeoutSeconds * SECOND_MS,
      memoryBytes: media.memoryMb * 1_000_000,
    },
    run,
    log,
    clock,
  });
}

function openVideo(
  shared: FeatureParts,
  openedMedia: () => Promise<Media>,
  callbacks: VideoCallbacks | undefined,
): Video {
  const { catalog, engines, stores, sales, guard, clock, ids, log } = shared;
  const { dataFolder, media, video } = shared.config.current;
  const failed = new FailedRequests(shared);
  return new Video({
    store: stores.store,
    engines: new VideosClient({
      engines,
      replicasOf: (modelId) => catalog.get(modelId)?.replicas ?? NO_REPLICAS,
      guard,
      fetchTimeoutMs: media.downloadTimeoutSeconds * SECOND_MS,
      clock,
    }),
    checkVideo: videoCheck(openedMedia),
    money: videoMoney(sales),
    folder: join(dataFolder, 'media'),
    ...video,
    maxStoredBytes: media.maxStoredMb * MB,
    callbacks,
    ended: (job, how) => failed.recordVideo(job, how),
    expectedSeconds: (modelId) => catalog.get(modelId)?.video?.expectedSeconds ?? USUAL_SECONDS,
    clock,
    ids,
    log,
  });
}

const NO_REPLICAS: [] = [];
