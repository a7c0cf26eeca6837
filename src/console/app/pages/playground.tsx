/** The playground: every kind of work of the service, tried by hand. One tab for each. */
import { useRoute } from 'preact-iso';
import { PageHead } from '../parts/page-head.tsx';
import { Tabs } from '../parts/tabs.tsx';
import { Chat } from '../playground/chat.tsx';
import { Cutout } from '../playground/cutout.tsx';
import { Embeddings } from '../playground/embeddings.tsx';
import { Transcription } from '../playground/transcription.tsx';
import { Video } from '../playground/video.tsx';

const KINDS = [
  ['chat', 'Chat', Chat],
  ['embeddings', 'Embeddings', Embeddings],
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
        lead="Real requests, charged like any other; each shows what it cost."
      />
      <Tabs
        label="Kinds of work"
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
