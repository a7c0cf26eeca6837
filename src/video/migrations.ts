/**
 * The tables of video jobs. `request` and `inputs` are JSON; media is in the data folder. `due_ms`
 * is the time of the next step, `lease_*` is the process that performs it.
 */
import type { Migration } from '../db/db.ts';

export const VIDEO_MIGRATIONS: readonly Migration[] = [
  {
    id: 'video-0001',
    up: `
CREATE TABLE video_job (
  id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  model_id TEXT NOT NULL,
  state TEXT NOT NULL,
  quote_nano BIGINT NOT NULL,
  request TEXT NOT NULL,
  inputs TEXT NOT NULL,
  engine TEXT NOT NULL,
  engine_model TEXT NOT NULL,
  engine_job_id TEXT NOT NULL,
  attempts BIGINT NOT NULL,
  progress_ppm BIGINT NOT NULL,
  created_ms BIGINT NOT NULL,
  started_ms BIGINT NOT NULL,
  finished_ms BIGINT NOT NULL,
  execution_ms BIGINT NOT NULL,
  due_ms BIGINT NOT NULL,
  lease_owner TEXT NOT NULL,
  lease_until_ms BIGINT NOT NULL,
  failure TEXT NOT NULL,
  media_bytes BIGINT NOT NULL,
  media_type TEXT NOT NULL,
  media_until_ms BIGINT NOT NULL,
  has_media BIGINT NOT NULL,
  download_hash TEXT,
  webhook_url TEXT NOT NULL,
  webhook_attempts BIGINT NOT NULL,
  webhook_due_ms BIGINT NOT NULL
);
CREATE INDEX video_job_due ON video_job (state, due_ms);
CREATE INDEX video_job_account ON video_job (account_id, created_ms);
CREATE INDEX video_job_model ON video_job (model_id, state, finished_ms);
CREATE INDEX video_job_media ON video_job (has_media, media_until_ms);
CREATE INDEX video_job_finished ON video_job (finished_ms);
CREATE INDEX video_job_webhook ON video_job (webhook_due_ms);
CREATE UNIQUE INDEX video_job_download ON video_job (download_hash);
`,
  },
  {
    // `unclear` counts create requests that may have reached an engine (`engine`, `engine_model`)
    // and whose response was lost; `silent_since_ms` is when the engine stopped responding. Engine
    // messages that earlier versions stored are removed.
    id: 'video-0002',
    up: `
ALTER TABLE video_job ADD COLUMN input_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE video_job ADD COLUMN unclear BIGINT NOT NULL DEFAULT 0;
ALTER TABLE video_job ADD COLUMN silent_since_ms BIGINT NOT NULL DEFAULT 0;
UPDATE video_job SET failure = '{"code":"INFERENCE_FAILED","message":"The engine could not make the video; nothing was charged","isPolicy":false}'
  WHERE failure LIKE '{"code":"INFERENCE_FAILED"%';
UPDATE video_job SET failure = '{"code":"CONTENT_POLICY_VIOLATION","message":"The engine refused the content; nothing was charged","isPolicy":true}'
  WHERE failure LIKE '{"code":"CONTENT_POLICY_VIOLATION"%';
`,
  },
  {
    id: 'video-0003',
    up: 'CREATE INDEX video_job_created ON video_job (created_ms, id);',
  },
  {
    // The tags of the request as a JSON object; null without tags.
    id: 'video-0004',
    up: 'ALTER TABLE video_job ADD COLUMN tags TEXT',
  },
  {
    // Whether the price is that of a video with sound; 0 for older jobs.
    id: 'video-0005',
    up: 'ALTER TABLE video_job ADD COLUMN has_sound BIGINT NOT NULL DEFAULT 0',
  },
  {
    // The quote at the list price; null for accounts without own prices.
    id: 'video-0006',
    up: 'ALTER TABLE video_job ADD COLUMN list_nano BIGINT',
  },
  {
    // Costs of the suppliers by engine and model, JSON; null if none is known.
    id: 'video-0007',
    up: 'ALTER TABLE video_job ADD COLUMN costs TEXT',
  },
];
