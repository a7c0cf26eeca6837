/** The playground page, with one tab per kind of request. */
import { useRoute } from 'preact-iso';
import { PageHead } from '../parts/page-head.tsx';
import { Tabs } from '../parts/tabs.tsx';
import { Chat } from '../playground/chat.tsx';
import { Cutout } from '../playground/cutout.tsx';
import { Embeddings } from '../playground/embeddings.tsx';
import { Images } from '../playground/images.tsx';
import { Rerank } from '../playground/rerank.tsx';
import { Speech } from '../playground/speech.tsx';
import { Transcription } from '../playground/transcription.tsx';
import { Video } from '../playground/video.tsx';

const KINDS = [
  ['chat', 'Chat', Chat],
  ['images', 'Images', Images],
  ['speech', 'Speech', Speech],
  ['embeddings', 'Embeddings', Embeddings],
  ['rerank', 'Reranking', Rerank],
  ['background', 'Background removal', Cutout],
  ['transcription', 'Transcription', Transcription],
  ['video', 'Video', Video],
] as const;

export function Playground() {
  const { params } = useRoute();
  const kind = params['kind'] ?? 'chat';
  const [name, , Shown] = KINDS.find(([one]) => one === kind) ?? KINDS[0];
  return (
    <>
      <PageHead
        title="Playground"
        lead="Send real requests. They are charged like any other, and each shows its cost."
      />
      <Tabs
        label="Kinds of requests"
        tabs={KINDS.map(([one, title]) => [addressOf(one), title])}
        at={addressOf(name)}
      />
      <Shown />
    </>
  );
}

function addressOf(kind: string): string {
  return `/console/playground${kind === 'chat' ? '' : `/${kind}`}`;
}
