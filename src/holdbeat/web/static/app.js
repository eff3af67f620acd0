// The pages work by themselves; this keeps them fresh and makes their buttons act.
import { startActions } from "./actions.js";
import { startDirect } from "./direct.js";
import { startLists } from "./filters.js";
import { startHint } from "./hint.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startLog, startOutput } from "./log.js";
import { startMake } from "./make.js";
import { startQueue } from "./queue.js";
import { startTheme } from "./theme.js";
import { startTimes } from "./times.js";
import { startZone } from "./zone.js";

startTheme();
startZone();
startTimes();
startActions();
startQueue();
startDirect();
startLog();
startOutput();
startLists();
startMake();
startHint();
startKeys();
startLive();
